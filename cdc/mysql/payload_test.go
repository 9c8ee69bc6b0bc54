package mysql

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"

	"invalidator/cdc"
)

type lastCommitted struct {
	at   cdc.Position
	time time.Time
}

func (h *lastCommitted) Started(context.Context, cdc.Position) error  { return nil }
func (h *lastCommitted) Change(context.Context, *cdc.RowChange) error { return nil }
func (h *lastCommitted) Lost(context.Context, cdc.Loss) error         { return nil }
func (h *lastCommitted) Joined(context.Context, []cdc.TableID, cdc.Position) error {
	return nil
}
func (h *lastCommitted) Committed(_ context.Context, p cdc.Position, at time.Time) error {
	h.at, h.time = p, at
	return nil
}

// A compressed transaction ends where its payload event does: what the events inside say of their place is of no use for a
// server without GTIDs, where file and offset are all that a resume has (E5).
func TestE5CompressedTransactionEndsBehindItsPayload(t *testing.T) {
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

// What may hold rows and is not known stops the source: it is never skipped. An event that its writer says may be ignored is.
func TestE5UnknownEventsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		kind   replication.EventType
		flags  uint16
		refuse bool
	}{{99, 0, true}, {99, replication.LOG_EVENT_IGNORABLE_F, false}, {replication.ROWS_QUERY_EVENT, 0, false}} {
		var h lastCommitted
		r := newReader(&Feeder{cfg: Config{Name: "shop"}}, &server{}, &tracker{id: "x", file: "binlog.3", pos: 4}, &h)
		header := &replication.EventHeader{EventType: tc.kind, Flags: tc.flags, LogPos: 300}
		err := r.event(t.Context(), &replication.BinlogEvent{Header: header, Event: &replication.GenericEvent{}}, 0)
		se, _ := errors.AsType[*cdc.SourceError](err)
		if (se != nil) != tc.refuse || se != nil && (se.Retry || se.Hint == "" || se.At.File != "binlog.3") {
			t.Errorf("event %d with flags %x: %v", tc.kind, tc.flags, err)
		}
	}
}

// A GTID with a tag is kept with it, in a set that has other tags of the same UUID (E10); what cannot be read is refused before
// anything is skipped.
func TestE10TaggedGTIDs(t *testing.T) {
	srv := &server{id: "x", gtid: true}
	tr, err := parsePosition(srv, cdc.Position{GTIDSet: someUUID + ":1-5:app:1-2:other:7", ServerUUID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	var h lastCommitted
	r := newReader(&Feeder{cfg: Config{Name: "shop"}}, srv, tr, &h)
	sid := uuid.MustParse(someUUID)
	ev := &replication.GtidTaggedLogEvent{GTIDEvent: replication.GTIDEvent{SID: sid[:], GNO: 3, Tag: mysql.NewTag("app"), ImmediateCommitTimestamp: 1_700_000_000_000_001}}
	for _, e := range []*replication.BinlogEvent{
		{Header: &replication.EventHeader{EventType: replication.GTID_TAGGED_LOG_EVENT, LogPos: 200}, Event: ev},
		{Header: &replication.EventHeader{EventType: replication.XID_EVENT, LogPos: 300}, Event: &replication.XIDEvent{}},
	} {
		if err := r.event(t.Context(), e, 0); err != nil {
			t.Fatal(err)
		}
	}
	if want := someUUID + ":1-5:app:1-3:other:7"; h.at.GTIDSet != want || h.time.Nanosecond() != 1000 {
		t.Errorf("got %s at %v, want %s", h.at.GTIDSet, h.time, want)
	}
	if _, err := parsePosition(srv, cdc.Position{GTIDSet: someUUID + ":1-5:app:1-x", ServerUUID: "x"}); err == nil {
		t.Error("a set that cannot be read is taken")
	}
}
