package memcache

import (
	"cmp"
	"slices"
)

// lane is one lane of a node's queue. Its entries count against its bound until they are answered.
type lane struct {
	limit int           // bytes
	again []entry       // what a sender gave back: in front of queue
	queue []entry       // queue[head:] waits for a sender
	head  int           //
	base  uint32        // the place of queue[0], modulo 2^32
	index index         // of queue[head:]
	count int           // deletes without an answer, here or at a sender
	bytes int           // what they hold
	room  chan struct{} // closed when room appears; nil when nobody waits for it
}

// keptQueue is how many entries of room a lane of an idle node keeps (64 KiB).
const keptQueue = 1024

func (l *lane) waits() bool { return len(l.again) > 0 || l.head < len(l.queue) }

// add queues an entry, or lets it go as one that waits already, and returns how many bytes it holds. An entry larger than the
// bound is taken when it is alone. ok is false where there is no room.
func (l *lane) add(e *entry) (size int, ok bool) {
	size = e.size()
	if l.count > 0 && l.bytes+size > l.limit {
		return 0, false
	}
	if e.compares {
		l.append(*e)
	} else if at := l.index.find(e.key, l.queue, l.head, l.base); at >= 0 {
		l.queue[at].join(e)
		size = joinedSize
	} else {
		l.append(*e)
	}
	l.count++
	l.bytes += size
	return size, true
}

func (l *lane) append(e entry) {
	if len(l.queue) == cap(l.queue) && l.head > len(l.queue)/2 {
		left := copy(l.queue, l.queue[l.head:]) // use again the room of what was taken, instead of growing
		clear(l.queue[left:])
		l.queue, l.base, l.head = l.queue[:left], l.base+uint32(l.head), 0
	}
	l.queue = append(l.queue, e)
}

// first returns the entry that is served next. It is called where one waits.
func (l *lane) first() *entry {
	if len(l.again) > 0 {
		return &l.again[0]
	}
	return &l.queue[l.head]
}

// pop takes the first entry away.
func (l *lane) pop() {
	if len(l.again) > 0 {
		l.again[0] = entry{}
		if l.again = l.again[1:]; len(l.again) == 0 {
			l.again = nil
		}
		return
	}
	l.queue[l.head] = entry{}
	if l.head++; l.head < len(l.queue) {
		return
	}
	l.base += uint32(len(l.queue))
	l.queue, l.head = l.queue[:0], 0
}

// trim gives back the room of an empty lane that grew large.
func (l *lane) trim() {
	if cap(l.queue) > keptQueue {
		l.queue, l.index = nil, index{}
	}
}

// answered frees the room of an entry.
func (l *lane) answered(e *entry) {
	l.count -= e.deletes()
	l.bytes -= e.size()
	l.wake()
}

// wake tells those that wait for room to look again.
func (l *lane) wake() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// awaitRoom returns what is closed when there may be room.
func (l *lane) awaitRoom() <-chan struct{} {
	if l.room == nil {
		l.room = make(chan struct{})
	}
	return l.room
}

// empty takes all entries out that wait.
func (l *lane) empty() (again, queue []entry) {
	again, queue = l.again, l.queue[l.head:]
	limit := l.limit
	l.wake()
	*l = lane{limit: limit}
	return again, queue
}

// oldest is when the oldest entry that waits was queued, Unix ns; 0 where none waits. One that was put behind others, since it failed
// alone, shows when its turn comes.
func (l *lane) oldest() int64 {
	since := oldest(l.again)
	if l.head < len(l.queue) && (since == 0 || l.queue[l.head].since < since) {
		since = l.queue[l.head].since
	}
	return since
}

// oldest returns when the oldest entry was queued, in Unix ns; zero when there is none. What was sent again is no
// longer in order.
func oldest(batch []entry) int64 {
	if len(batch) == 0 {
		return 0
	}
	return slices.MinFunc(batch, func(a, b entry) int { return cmp.Compare(a.since, b.since) }).since
}
