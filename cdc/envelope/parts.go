package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"invalidator/cdc"
)

// envelope are the members of a Debezium envelope as they stand in the record.
type envelope struct {
	before, after, source, op, transaction, message []byte
	tsMillis, status, eventCount, ddl, tableChanges []byte
	other                                           []byte // the last member that is none of these
}

// place is where a member's text goes; nil for one that is not read.
func (e *envelope) place(name []byte) *[]byte {
	switch string(name) {
	case "before":
		return &e.before
	case "after":
		return &e.after
	case "source":
		return &e.source
	case "op":
		return &e.op
	case "transaction":
		return &e.transaction
	case "message":
		return &e.message
	case "ts_ms":
		return &e.tsMillis
	case "status":
		return &e.status
	case "event_count":
		return &e.eventCount
	case "ddl":
		return &e.ddl
	case "tableChanges":
		return &e.tableChanges
	}
	return nil
}

// parse finds the members, and reads those of source into src.
func (e *envelope) parse(raw []byte, src *source) error {
	m := members{s: scanner{b: raw}}
	for {
		name, ok, err := m.name()
		if err != nil || !ok {
			return err
		}
		p := e.place(name)
		var value []byte
		switch p {
		case &e.before, &e.after:
			value, err = m.s.object()
		case &e.source:
			value, err = src.parse(&m.s)
		default:
			value, err = m.s.raw()
		}
		if err != nil {
			return err
		}
		if p != nil {
			err = put(p, name, value)
		} else if string(name) != "ts_us" && string(name) != "ts_ns" {
			e.other = value
		}
		if err != nil {
			return err
		}
	}
}

// put keeps a member's text in its place, and refuses one that stands twice.
func put(place *[]byte, name, value []byte) error {
	if place == nil {
		return nil
	}
	if *place != nil {
		return fmt.Errorf("field %q stands twice", name)
	}
	*place = value
	return nil
}

// parseMembers puts each member of an object where place says. It is for what is not read record by record: a closure costs
// an allocation of what it points to.
func parseMembers(raw []byte, place func(name []byte) *[]byte) error {
	m := members{s: scanner{b: raw}}
	for {
		name, value, ok, err := m.next()
		if err == nil && ok {
			err = put(place(name), name, value)
		}
		if err != nil || !ok {
			return err
		}
	}
}

// noChange says by its word that a record which has no op is none of a row; empty for anything else. A row that came
// without its envelope must not pass for one of these, whatever its columns are called.
func (e *envelope) noChange() string {
	switch {
	case !isNull(e.op):
		return ""
	case !isNull(e.source) && (e.ddl != nil || e.tableChanges != nil):
		return IgnoredDDL
	case e.eventCount != nil && (string(e.status) == `"BEGIN"` || string(e.status) == `"END"`):
		return IgnoredTransaction
	case e.tsMillis != nil && e.other == nil && e.source == nil && e.before == nil && e.after == nil:
		return IgnoredHeartbeat
	}
	return ""
}

func (e *envelope) operation() (cdc.Op, error) {
	switch string(e.op) {
	case `"c"`, `"u"`, `"d"`, `"t"`, `"m"`, `"r"`:
		return cdc.Op(e.op[1]), nil
	case "", "null":
		return 0, errors.New("no change record: it has no op")
	}
	return 0, fmt.Errorf("op %.20q is not known", e.op)
}

// transactionIn reads Debezium's transaction block: zero where there is none.
func (e *envelope) transactionIn() (id []byte, order int64) {
	if isNull(e.transaction) {
		return nil, 0
	}
	m := members{s: scanner{b: e.transaction}}
	for {
		name, value, ok, err := m.next()
		if err != nil || !ok {
			return id, order
		}
		switch string(name) {
		case "id":
			id = value
		case "total_order":
			order = intOf(value)
		}
	}
}

// source are the members of the source block that are read.
type source struct {
	connector, name, db, schema, table []byte
	snapshot, tsMillis, tsMicros       []byte
	gtid, file, pos, txID, lsn, ours   []byte
	marker                             marker
}

func (s *source) place(name []byte) *[]byte {
	switch string(name) {
	case "connector":
		return &s.connector
	case "name":
		return &s.name
	case "db":
		return &s.db
	case "schema":
		return &s.schema
	case "table":
		return &s.table
	case "snapshot":
		return &s.snapshot
	case "ts_ms":
		return &s.tsMillis
	case "ts_us":
		return &s.tsMicros
	case "gtid":
		return &s.gtid
	case "file":
		return &s.file
	case "pos":
		return &s.pos
	case "txId":
		return &s.txID
	case "lsn":
		return &s.lsn
	case "invalidator":
		return &s.ours
	}
	return nil
}

// parse reads the source block that comes next, and returns its text. What is no object is passed over.
func (s *source) parse(in *scanner) (raw []byte, err error) {
	if in.space(); in.i >= len(in.b) || in.b[in.i] != '{' {
		return in.raw()
	}
	m := members{s: *in, inner: true}
	for {
		name, value, ok, err := m.next()
		if err == nil && ok {
			err = put(s.place(name), name, value)
		}
		if err != nil {
			return nil, fmt.Errorf("reading source: %w", err)
		}
		if !ok {
			raw = in.b[in.i:m.s.i]
			*in = m.s
			return raw, nil
		}
	}
}

// isSnapshot reports whether the row was read by a snapshot of the whole table. An incremental snapshot's own rows have op
// r; the mark on anything else is of the stream beside it.
func (s *source) isSnapshot() bool {
	switch string(s.snapshot) {
	case "", "null", "false", `"false"`, `"incremental"`:
		return false
	}
	return true
}

func (s *source) time() time.Time {
	if us := intOf(s.tsMicros); us > 0 {
		return time.UnixMicro(us).UTC()
	}
	if ms := intOf(s.tsMillis); ms > 0 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

func (s *source) tx(t *texts) string {
	if !isNull(s.gtid) {
		return t.of(s.gtid)
	}
	return t.of(s.txID)
}

func (s *source) position(t *texts) cdc.Position {
	p := cdc.Position{File: t.of(s.file)}
	if pos := intOf(s.pos); pos > 0 {
		p.Pos = uint64(pos)
	}
	if isNull(s.lsn) {
		return p
	}
	if lsn, err := strconv.ParseUint(view(s.lsn), 10, 64); err == nil {
		p.LSN = t.lsn(lsn)
	}
	return p
}

// intOf is the value of a JSON integer; 0 for anything else.
func intOf(raw []byte) int64 {
	if isNull(raw) {
		return 0
	}
	if len(raw) < maxDigits { // all but the longest, at a third of ParseInt's price
		n := int64(0)
		for _, c := range raw {
			if c < '0' || c > '9' {
				n = -1
				break
			}
			n = 10*n + int64(c-'0')
		}
		if n >= 0 {
			return n
		}
	}
	n, err := strconv.ParseInt(view(raw), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// maxDigits is how many digits the greatest int64 has.
const maxDigits = 19

// table is what source says about a record's table, made into strings once.
type table struct {
	source    string
	connector cdc.Connector
	id        cdc.TableID
	plan      lastPlan // for records without a schema
	key       atomic.Pointer[[]string]
}

func (d *Decoder) tableOf(s *source) *table {
	var buf [160]byte
	key := buf[:0]
	for _, part := range [...][]byte{s.connector, s.name, s.db, s.schema, s.table} {
		key = append(append(key, part...), ',')
	}
	if t, ok := d.tables.get(key); ok {
		return t
	}
	return d.tables.put(bytes.Clone(key), newTable(s))
}

func newTable(s *source) *table {
	t := &table{source: textOf(s.name), connector: cdc.Connector(textOf(s.connector))}
	t.id.Table = textOf(s.table)
	if mysqlLike(t.connector) || isNull(s.schema) {
		t.id.Schema = textOf(s.db)
	} else {
		t.id.Database, t.id.Schema = textOf(s.db), textOf(s.schema)
	}
	return t
}
