package pipeline

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// Refresher asks that a key's value be rebuilt.
type Refresher interface {
	// Request writes r and calls done once, mostly from another goroutine: with nil when every in-sync replica has it. It
	// is called from partitions' goroutines and does not block; where it has no room, it tells done so. An error, ctx's included,
	// leaves open whether r was written. Writing it twice is harmless.
	Request(ctx context.Context, r changelog.RefreshRequest, done func(error))
}

// refreshes are the requests of a track that have to be written again. They belong to changes in flight, which bound them.
type refreshes struct {
	failed []request
	again  time.Time     // when they are
	pause  time.Duration // between the last two tries; 0 when the last one succeeded
}

// request is one of a change's refresh requests, and how writing it ended.
type request struct {
	c   *change
	at  int // in c.requests
	err error
}

// requestsOf are the requests for those keys whose template asks for one. recordKey is the key of the change's record.
func requestsOf(keys []mapping.Key, row *cdc.RowChange, recordKey []byte) (all []changelog.RefreshRequest) {
	for _, k := range keys {
		if k.Template.Action != mapping.ActionRefresh {
			continue
		}
		all = append(all, changelog.RefreshRequest{
			V: 1, Key: k.Text, KeyBase64: sink.Base64(k.Text), Pool: k.Template.Pool, Team: k.Template.Team, Mapping: k.Template.Mapping,
			Source: row.Source, Table: row.TableID.String(), Reason: reasons[row.Op], Committed: row.CommitTime,
		})
	}
	if row.Op == cdc.Truncate { // it has no row, and may be of many tables
		for i := range all {
			all[i].Table = row.Emptied()[0]
		}
		return all
	}
	if len(all) > 0 {
		key := rowKey(row, recordKey)
		for i := range all {
			all[i].Row = key
		}
	}
	return all
}

var reasons = map[cdc.Op]string{cdc.Insert: "insert", cdc.Read: "insert", cdc.Update: "update", cdc.Delete: "delete", cdc.Tomb: "delete", cdc.Truncate: "truncate"}

// maxRowKey bounds a row's key in a request, in bytes; a longer one is left out, since a topic may refuse it for ever.
const maxRowKey = 16 << 10

// rowKey is the record's key as JSON, without the schema that may wrap it. Where it is in another format it is made of what was
// decoded: the key's columns that mappings read, as text, bytes in base64.
func rowKey(row *cdc.RowChange, recordKey []byte) json.RawMessage {
	if len(recordKey) > maxRowKey {
		return nil
	}
	if json.Valid(recordKey) {
		var wrapped struct{ Schema, Payload json.RawMessage }
		if json.Unmarshal(recordKey, &wrapped) == nil && len(wrapped.Schema) > 0 && wrapped.Schema[0] == '{' && wrapped.Payload != nil {
			return wrapped.Payload
		}
		return bytes.Clone(recordKey)
	}
	texts := map[string]string{}
	for _, name := range row.KeyColumns {
		switch v := columnOf(row, name); v.Kind {
		case cdc.Absent, cdc.Null:
		case cdc.Bytes:
			texts[name] = base64.StdEncoding.EncodeToString([]byte(v.S))
		default:
			texts[name] = v.S
		}
	}
	if len(texts) == 0 {
		return nil
	}
	b, err := json.Marshal(texts)
	if err != nil {
		panic(err) // a map of texts
	}
	return b
}

// columnOf is a column's value after the change, or before it where there is none.
func columnOf(row *cdc.RowChange, name string) (v cdc.Value) {
	i := row.Columns.Index(name)
	for _, image := range []cdc.Row{row.After, row.Before} {
		if i >= 0 && i < len(image) && v.Kind == cdc.Absent {
			v = image[i]
		}
	}
	return v
}

// askFor writes a change's requests. It comes after the last round, so that none of this change's own deletes takes away what is
// rebuilt; and the change is not finished, nor does the watermark pass it, before all of them are written.
func (t *track) askFor(ctx context.Context, c *change) {
	c.unwritten = len(c.requests)
	for i := range c.requests {
		t.ask(ctx, request{c: c, at: i})
	}
}

func (t *track) ask(ctx context.Context, q request) {
	r := &q.c.requests[q.at]
	r.At = time.Now()
	t.p.w.opts.Refresher.Request(ctx, *r, func(err error) {
		q.err = err
		t.mu.Lock()
		t.mu.written = append(t.mu.written, q)
		t.mu.Unlock()
		rouse(t.wake)
	})
}

// answered takes the end of one request's writing: one that failed is tried again after a pause, for ever.
func (t *track) answered(q request) {
	o := &t.owed
	if q.err == nil {
		o.pause = 0
		t.p.w.metrics.refreshes.Inc()
		q.c.unwritten--
		q.c.finished = q.c.unwritten == 0
		return
	}
	if len(o.failed) == 0 {
		o.pause = min(max(2*o.pause, retryMin), retryMax)
		o.again = time.Now().Add(o.pause)
		t.p.w.log.Error("writing a refresh request; its change is not finished until it works", "topic", t.p.id.Topic, "partition", t.p.id.Number,
			"offset", q.c.offset, "again_in", o.pause, "error", q.err)
	}
	o.failed = append(o.failed, q)
}

func (t *track) askAgain(ctx context.Context) {
	if len(t.owed.failed) == 0 || time.Now().Before(t.owed.again) {
		return
	}
	failed := t.owed.failed
	t.owed.failed = nil
	for _, q := range failed {
		t.ask(ctx, q)
	}
}
