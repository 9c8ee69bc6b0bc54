package pipeline

import (
	"time"

	"invalidator/internal/changelog"
)

// progress is how far the partition is finished, and what its next owner gets. The order is the proof that one stands for the other: the
// watermark is read first, the debts afterwards (ledger).
func (p *partition) progress(now time.Time) changelog.Progress {
	p.journal.tidy(now)
	return changelog.Progress{Partition: p.id, Offset: p.mark.Load(), Version: p.revision.Load(), Keep: p.keep}
}

func (p *partition) keep() changelog.Kept {
	s := State{V: stateVersion, Offset: p.mark.Load()}
	s.Debts = p.ledger.list()
	var k changelog.Kept
	s.Journal, k.Journal, k.Drop = p.journal.kept()
	s.Issued.Epoch, s.Issued.HotRevision = p.journal.greatest()
	s.Acted = Sight{s.Issued.Epoch, p.hot.acted.Load()}
	k.State = s.encode()
	return k
}
