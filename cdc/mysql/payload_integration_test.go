//go:build integration

package mysql

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

// A compressed transaction gives what it would give uncompressed. The development server is older than those, so a real
// transaction of its log is put into a payload event here, as 8.0.20 does: events without checksums, behind the fields that
// describe them (libbinlogevents, Transaction_payload_event).
func TestE5CompressedTransactions(t *testing.T) {
	b := newBed(t, "MYSQL")
	b.do("CREATE TABLE u (id INT PRIMARY KEY, t VARCHAR(4000))")
	f := b.feeder()
	for _, rows := range []int{1, 5000} { // 5,000 rows are 20 MB, over the 8 MB of a default window
		tp := b.run(f, cdc.Position{})
		var values []string
		for i := range rows {
			values = append(values, fmt.Sprintf("(%d,REPEAT('x',4000))", rows+i))
		}
		b.do("INSERT INTO u VALUES " + strings.Join(values, ","))
		want := tp.take(rows)
		tp.stop()
		got, p := b.throughPayload(f, tp.started)
		if len(got) != rows || !slices.Equal(texts(got), texts(want)) || got[0].Tx != want[0].Tx || got[rows-1].Ordinal != int64(rows-1) {
			t.Errorf("%d rows give %d, %s", rows, len(got), got[0].Tx)
		}
		if p.GTIDSet != tp.after(rows).GTIDSet || p.Pos != tp.after(rows).Pos {
			t.Errorf("the position is %v, want %v", p, tp.after(rows))
		}
	}
}

// throughPayload reads the first transaction with rows of the bed's behind a place, compressed.
func (b *bed) throughPayload(f *Feeder, from cdc.Position) ([]*cdc.RowChange, cdc.Position) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	c, track, err := f.choose(ctx, from)
	if err != nil {
		b.Fatal(err)
	}
	defer c.close()
	d, err := f.openDump(ctx, c.server, track, toLook)
	if err != nil {
		b.Fatal(err)
	}
	defer d.close()
	h := &tape{b: b, news: make(chan struct{})}
	r := newReader(f, c.server, track, h)
	if r.json, err = newJSONDecoder(); err != nil {
		b.Fatal(err)
	}
	var inside []byte
	for len(h.changes) == 0 {
		e, err := d.next()
		if err != nil {
			b.Fatal(err)
		}
		last := false
		switch ev := e.Event.(type) {
		case *replication.RotateEvent, *replication.FormatDescriptionEvent, *replication.GTIDEvent:
			inside = nil
		default:
			if q, ok := ev.(*replication.QueryEvent); ok && string(q.Query) != "BEGIN" {
				break // somebody else's DDL
			}
			if e.Header.EventType == replication.HEARTBEAT_EVENT {
				continue
			}
			raw := slices.Clone(e.RawData[:len(e.RawData)-r.checksum])
			binary.LittleEndian.PutUint32(raw[9:], uint32(len(raw)))
			inside = append(inside, raw...)
			if last = e.Header.EventType == replication.XID_EVENT; !last {
				continue
			}
		}
		if last {
			e.Event = payload(b.T, d.parser, inside, e.Header)
		}
		if err := r.event(ctx, e, r.checksum); err != nil {
			b.Fatal(err)
		}
	}
	return h.changes, h.commits[len(h.commits)-1].at
}

// payload is the event that holds the events, parsed as the driver does.
func payload(t *testing.T, parser *replication.BinlogParser, inside []byte, last *replication.EventHeader) replication.Event {
	t.Helper()
	le := binary.LittleEndian
	packed := zstdFrame(inside)
	body := append([]byte{2, 1, replication.ZSTD, 3, 8}, le.AppendUint64(nil, uint64(len(inside)))...)
	body = append(append(body, 1, 8), le.AppendUint64(nil, uint64(len(packed)))...)
	body = append(append(body, 0), packed...)
	raw := le.AppendUint32(nil, last.Timestamp)
	raw = append(raw, byte(replication.TRANSACTION_PAYLOAD_EVENT))
	raw = le.AppendUint32(raw, last.ServerID)
	raw = le.AppendUint32(raw, uint32(replication.EventHeaderSize+len(body)+replication.BinlogChecksumLength))
	raw = le.AppendUint32(raw, last.LogPos)
	raw = append(le.AppendUint16(raw, 0), body...)
	parser.SetVerifyChecksum(false)
	e, err := parser.Parse(append(raw, 0, 0, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	last.EventType = replication.TRANSACTION_PAYLOAD_EVENT
	return e.Event
}

// zstdFrame is a frame of zstd with blocks that are stored as they are (RFC 8878).
func zstdFrame(data []byte) []byte {
	out := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, binary.LittleEndian.AppendUint64(nil, uint64(len(data)))...)
	for block := range slices.Chunk(data, 128<<10) {
		head := uint32(len(block)) << 3
		if &block[len(block)-1] == &data[len(data)-1] {
			head |= 1 // the last
		}
		out = append(append(out, byte(head), byte(head>>8), byte(head>>16)), block...)
	}
	return out
}
