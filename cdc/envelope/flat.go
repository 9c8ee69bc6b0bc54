package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"invalidator/cdc"
)

// flatPrefix stands before the envelope's fields that ExtractNewRecordState leaves beside a row's columns (add.fields):
// __deleted, __op, __table, __source_ts_ms …
var (
	flatPrefix   = []byte("__")
	flatOfSource = []byte("source_")
)

const (
	heartbeatTopics   = "__debezium-heartbeat" // Debezium's default topic.heartbeat.prefix
	transactionTopics = ".transaction"         // and topic.transaction
)

// flatFields are the envelope's fields beside a row.
type flatFields struct{ op, deleted []byte }

// flat reads a row without its envelope. What the transform passes on as it is (heartbeats, schema changes, transaction
// boundaries, whole envelopes) is read as what it is.
func (r *reading) flat(payload []byte) (*cdc.RowChange, string, error) {
	var f flatFields
	if err := r.flatParse(payload, &f); err != nil {
		return nil, "", err
	}
	word, nested := r.passedOn()
	if nested {
		r.src = source{}
		if _, err := r.src.parse(&scanner{b: r.env.at[envSource]}, &r.s.hints.source); err != nil {
			return nil, "", err
		}
		return r.envelope()
	}
	if word != "" {
		return nil, word, nil
	}
	r.isFlat = true
	var err error
	if r.table, err = r.d.flatTable(r.rec.Topic, &r.src); err != nil {
		return nil, "", err
	}
	r.at.table = r.table.id
	op, err := f.operation(&r.s.texts)
	if err != nil {
		return nil, "", err
	}
	op, ignored := r.wanted(op)
	if ignored != "" {
		return nil, ignored, nil
	}
	r.env.at[envTransaction] = nil // a column's
	c := r.newChange(op)
	switch op {
	case cdc.Truncate:
	case cdc.Delete:
		c.Before, err = r.image(rowBefore, payload)
	default:
		c.After, err = r.image(rowAfter, payload)
	}
	if err != nil {
		return nil, "", err
	}
	return c, "", nil
}

// flatParse finds the envelope's fields beside the row, and what would make the record an envelope.
func (r *reading) flatParse(payload []byte, f *flatFields) error {
	m := members{s: scanner{b: payload}}
	h := &r.s.hints.flat
	for {
		name, place, ok, err := m.hinted(h)
		if err != nil || !ok {
			return err
		}
		if place == unseen {
			place = flatPlace(name)
			m.learn(h, name, place)
		}
		value, err := m.s.raw()
		if err != nil {
			return err
		}
		if place == nowhere {
			continue
		}
		if at := r.flatAt(place, f); *at == nil {
			*at = value
		}
	}
}

// The places of a flat row's members: those of an envelope, then those of a source block, then these.
const (
	flatSource  = envMembers
	flatOp      = flatSource + srcMembers
	flatDeleted = flatOp + 1
)

// flatPlace is where a member's text goes; nowhere for one that is not read.
func flatPlace(name []byte) int {
	short, ok := bytes.CutPrefix(name, flatPrefix)
	if !ok {
		return max(envelopePlace(name), nowhere)
	}
	short, ofSource := bytes.CutPrefix(short, flatOfSource)
	switch string(short) {
	case "op":
		return flatOp
	case "deleted":
		return flatDeleted
	case "ts_ms", "ts_us": // without source_ it is the time of Debezium's handling
		if !ofSource {
			return nowhere
		}
	case "invalidator":
		return nowhere
	}
	if at := sourcePlace(short); at >= 0 {
		return flatSource + at
	}
	return nowhere
}

func (r *reading) flatAt(place int, f *flatFields) *[]byte {
	switch {
	case place < flatSource:
		return &r.env.at[place]
	case place < flatOp:
		return &r.src.at[place-flatSource]
	case place == flatOp:
		return &f.op
	}
	return &f.deleted
}

// passedOn says what a record is that is no flat row: the word for no change, or a whole envelope (a schema change is one).
func (r *reading) passedOn() (ignored string, envelope bool) {
	nested := len(r.env.at[envSource]) > 0 && r.env.at[envSource][0] == '{' // no column of a flat row is
	switch word := r.env.noChange(); {
	case strings.HasPrefix(r.rec.Topic, heartbeatTopics):
		return IgnoredHeartbeat, false
	case word == IgnoredTransaction && strings.HasSuffix(r.rec.Topic, transactionTopics):
		return word, false
	case word == IgnoredDDL && nested:
		return "", true
	}
	if !nested {
		return "", false
	}
	_, err := operationOf(r.env.at[envOp])
	return "", err == nil
}

// operation: a row that does not say what happened to it was inserted or updated; an update is what misses nothing.
func (f *flatFields) operation(t *texts) (cdc.Op, error) {
	if t.of(f.deleted) == "true" {
		return cdc.Delete, nil
	}
	if isNull(f.op) {
		return cdc.Update, nil
	}
	op, err := operationOf(f.op)
	if op == cdc.Message {
		return 0, errors.New("__op m: a logical message is no row")
	}
	if err != nil {
		return 0, fmt.Errorf("reading __op: %w", err)
	}
	return op, nil
}

// flatTable takes the table from the fields beside the row, and what those do not say from the topic and the configuration.
func (d *Decoder) flatTable(topic string, s *source) (*table, error) {
	var buf [160]byte
	key := append(buf[:0], topic...)
	for _, part := range [...][]byte{s.at[srcConnector], s.at[srcName], s.at[srcDB], s.at[srcSchema], s.at[srcTable]} {
		key = append(append(key, ','), part...)
	}
	if t, ok := d.tables.get(key); ok {
		return t, nil
	}
	t := newTable(s)
	if t.source == "" {
		t.source = d.conf.Source
	}
	if t.connector == "" {
		t.connector = d.conf.Connector
	}
	if t.connector == cdc.Postgres && isNull(s.at[srcSchema]) {
		t.id.Database, t.id.Schema = textOf(s.at[srcDB]), ""
	}
	if t.id.Schema == "" || t.id.Table == "" {
		id, ok := d.conf.Table(topic)
		if !ok {
			return nil, errors.New("an unwrapped row without __table, whose " + noTable)
		}
		if t.id.Schema == "" {
			t.id.Schema = id.Schema
		}
		if t.id.Table == "" {
			t.id.Table = id.Table
		}
		if t.id.Database == "" {
			t.id.Database = id.Database
		}
	}
	return d.tables.put(bytes.Clone(key), t), nil
}
