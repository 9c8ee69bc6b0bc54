package mysql

import (
	"context"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

type lastCommitted struct{ at cdc.Position }

func (h *lastCommitted) Started(context.Context, cdc.Position) error  { return nil }
func (h *lastCommitted) Change(context.Context, *cdc.RowChange) error { return nil }
func (h *lastCommitted) Lost(context.Context, cdc.Loss) error         { return nil }
func (h *lastCommitted) Joined(context.Context, []cdc.TableID, cdc.Position) error {
	return nil
}
func (h *lastCommitted) Committed(_ context.Context, p cdc.Position, _ time.Time) error {
	h.at = p
	return nil
}

// A compressed transaction ends where its payload event does: what the events inside say of their place is of no use for a
// server without GTIDs, where file and offset are all that a resume has (E5).
func TestACompressedTransactionEndsBehindItsPayload(t *testing.T) {
	var h lastCommitted
	r := &reader{track: &tracker{id: "x", file: "binlog.3", pos: 4}, out: &h}
	inner := &replication.BinlogEvent{Header: &replication.EventHeader{EventType: replication.XID_EVENT, LogPos: 300}, Event: &replication.XIDEvent{}}
	payload := &replication.BinlogEvent{
		Header: &replication.EventHeader{EventType: replication.TRANSACTION_PAYLOAD_EVENT, LogPos: 9000},
		Event:  &replication.TransactionPayloadEvent{Events: []*replication.BinlogEvent{inner}},
	}
	if err := r.event(t.Context(), payload, 0); err != nil {
		t.Fatal(err)
	}
	if h.at.Pos != 9000 {
		t.Errorf("the position is %d", h.at.Pos)
	}
}
