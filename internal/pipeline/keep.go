package pipeline

import (
	"slices"
	"sync"
	"time"

	"invalidator/internal/changelog"
)

// progress is how far the partition is finished, and what its next owner gets. The order is the proof that one stands for the other: the
// watermark is read first, the debts afterwards (ledger).
func (p *partition) progress(now time.Time) changelog.Progress {
	p.journal.tidy(now)
	p.places.tidy(now)
	return changelog.Progress{Partition: p.id, Offset: p.mark.Load(), Version: p.revision.Load(), Keep: p.keep}
}

// keep gives the state. What was acted on is read before the debts and before what was issued under: an epoch that it names has its debt there, and
// nobody issues under less.
func (p *partition) keep() changelog.Kept {
	s := State{V: stateVersion, Offset: p.mark.Load()}
	epochs, control := p.acted.get()
	s.Acted.Epochs, s.Acted.Control = append([]int64{}, epochs...), control
	s.Acted.HotRevision = p.hot.acted.Load()
	s.Debts = p.ledger.list()
	var k changelog.Kept
	s.Journal, k.Journal, k.Drop = p.journal.kept()
	s.Issued.Epoch, s.Issued.HotRevision = p.journal.greatest()
	k.State = s.encode()
	return k
}

// acted is what a partition's state says that has been acted on. The partition's goroutine moves it, whoever commits reads it.
type acted struct {
	mu struct { // a leaf
		sync.Mutex
		epochs  []int64 // never changed in place
		control ControlMark
	}
}

func (a *acted) get() (epochs []int64, control ControlMark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.epochs, a.mu.control
}

// onEpochs notes that the debts that follow from these ring records are in the ledger, and what was issued under is in the journal.
func (p *partition) onEpochs(epochs []int64) {
	p.acted.mu.Lock()
	news := !slices.Equal(p.acted.mu.epochs, epochs)
	p.acted.mu.epochs = epochs
	p.acted.mu.Unlock()
	if news {
		p.revision.Add(1)
	}
}

// onControl notes that the debts of all plans before mark are in the ledger.
func (p *partition) onControl(mark ControlMark) {
	p.acted.mu.Lock()
	news := p.acted.mu.control != mark
	p.acted.mu.control = mark
	p.acted.mu.Unlock()
	if news {
		p.revision.Add(1)
	}
}
