package memcache

import "time"

// pace is how much a node answers while it is busy, that is while it has deletes without an answer.
type pace struct {
	began    time.Time        // it has been busy since; zero: it is idle
	busy     [2]time.Duration // in the window that is open, and in the one before
	answered [2]int           // deletes, likewise
	latest   time.Time        // when it last answered
}

// paceWindow is how much busy time makes a window.
const paceWindow = time.Second

func (p *pace) start(now time.Time) {
	if p.began.IsZero() {
		p.began = now
	}
}

// add notes n answers, after which the node is idle or is not.
func (p *pace) add(now time.Time, n int, idle bool) {
	p.roll(now)
	p.answered[0] += n
	if n > 0 {
		p.latest = now
	}
	if idle {
		p.began = time.Time{}
	}
}

// roll counts the busy time until now. A window is closed when it is full.
func (p *pace) roll(now time.Time) {
	if p.began.IsZero() {
		return
	}
	p.busy[0] += now.Sub(p.began)
	p.began = now
	if p.busy[0] >= paceWindow {
		p.busy, p.answered = [2]time.Duration{0, p.busy[0]}, [2]int{0, p.answered[0]}
	}
}

// rate is how many deletes the node answered in a second of its busy time, and how much of that is known. A node that is idle, and has been
// for a window, has none.
func (p *pace) rate(now time.Time) (perSecond float64, known time.Duration) {
	p.roll(now)
	known = p.busy[0] + p.busy[1]
	if known == 0 || p.began.IsZero() && now.Sub(p.latest) > paceWindow {
		return 0, 0
	}
	return float64(p.answered[0]+p.answered[1]) / known.Seconds(), known
}
