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
	at    [envMembers][]byte
	other []byte // the last member that is none of these
}

const (
	envBefore = iota
	envAfter
	envSource
	envOp
	envTransaction
	envMessage
	envTSMillis
	envStatus
	envEventCount
	envDDL
	envTableChanges
	envMembers
)

// envelopePlace is where a member's text goes; nowhere for one that is not read.
func envelopePlace(name []byte) int {
	switch string(name) {
	case "before":
		return envBefore
	case "after":
		return envAfter
	case "source":
		return envSource
	case "op":
		return envOp
	case "transaction":
		return envTransaction
	case "message":
		return envMessage
	case "ts_ms":
		return envTSMillis
	case "status":
		return envStatus
	case "event_count":
		return envEventCount
	case "ddl":
		return envDDL
	case "tableChanges":
		return envTableChanges
	case "ts_us", "ts_ns":
		return nowhere
	}
	return elsewhere
}

// parse finds the members, and reads those of source into src.
func (e *envelope) parse(raw []byte, src *source, known *recordHints) error {
	m := members{s: scanner{b: raw}}
	h := &known.record
	for {
		name, place, ok, err := m.hinted(h)
		if err != nil || !ok {
			return err
		}
		if place == unseen {
			place = envelopePlace(name)
			m.learn(h, name, place)
		}
		var value []byte
		switch place {
		case envBefore, envAfter:
			value, err = known.pass(&m.s, place)
		case envSource:
			value, err = src.parse(&m.s, &known.source)
		default:
			value, err = m.s.raw()
		}
		if err == nil && place >= 0 {
			err = put(&e.at[place], name, value)
		}
		if err != nil {
			return err
		}
		if place == elsewhere {
			e.other = value
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
	case !isNull(e.at[envOp]):
		return ""
	case !isNull(e.at[envSource]) && (e.at[envDDL] != nil || e.at[envTableChanges] != nil):
		return IgnoredDDL
	case e.at[envEventCount] != nil && (string(e.at[envStatus]) == `"BEGIN"` || string(e.at[envStatus]) == `"END"`):
		return IgnoredTransaction
	case e.at[envTSMillis] != nil && e.other == nil && e.at[envSource] == nil && e.at[envBefore] == nil && e.at[envAfter] == nil:
		return IgnoredHeartbeat
	}
	return ""
}

// ErrNoOp is a record that is no envelope: a row that stands alone (ExtractNewRecordState), or something else.
var ErrNoOp = errors.New("no change record: it has no op")

func operationOf(raw []byte) (cdc.Op, error) {
	switch string(raw) {
	case `"c"`, `"u"`, `"d"`, `"t"`, `"m"`, `"r"`:
		return cdc.Op(raw[1]), nil
	case "", "null":
		return 0, ErrNoOp
	}
	return 0, fmt.Errorf("op %.20q is not known", raw)
}

// transactionIn reads Debezium's transaction block: zero where there is none.
func (e *envelope) transactionIn() (id []byte, order int64) {
	if isNull(e.at[envTransaction]) {
		return nil, 0
	}
	m := members{s: scanner{b: e.at[envTransaction]}}
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
	at     [srcMembers][]byte
	marker marker
}

const (
	srcConnector = iota
	srcName
	srcDB
	srcSchema
	srcTable
	srcSnapshot
	srcTSMillis
	srcTSMicros
	srcGTID
	srcFile
	srcPos
	srcTxID
	srcLSN
	srcOurs
	srcMembers
)

func sourcePlace(name []byte) int {
	switch string(name) {
	case "connector":
		return srcConnector
	case "name":
		return srcName
	case "db":
		return srcDB
	case "schema":
		return srcSchema
	case "table":
		return srcTable
	case "snapshot":
		return srcSnapshot
	case "ts_ms":
		return srcTSMillis
	case "ts_us":
		return srcTSMicros
	case "gtid":
		return srcGTID
	case "file":
		return srcFile
	case "pos":
		return srcPos
	case "txId":
		return srcTxID
	case "lsn":
		return srcLSN
	case "invalidator":
		return srcOurs
	}
	return nowhere
}

// parse reads the source block that comes next, and returns its text. What is no object is passed over.
func (s *source) parse(in *scanner, h *hints) (raw []byte, err error) {
	if in.space(); in.i >= len(in.b) || in.b[in.i] != '{' {
		return in.raw()
	}
	start := in.i
	m := members{s: *in, inner: true}
	for {
		name, place, ok, err := m.hinted(h)
		if err == nil && !ok {
			*in = m.s
			return in.b[start:in.i], nil
		}
		var value []byte
		if err == nil {
			if place == unseen {
				place = sourcePlace(name)
				m.learn(h, name, place)
			}
			if place == srcOurs { // which is read afterwards
				value, err = m.s.object()
			} else {
				value, err = m.s.raw()
			}
		}
		if err == nil && place >= 0 {
			err = put(&s.at[place], name, value)
		}
		if err != nil {
			return nil, fmt.Errorf("reading source: %w", err)
		}
	}
}

// isSnapshot reports whether the row was read by a snapshot of the whole table. An incremental snapshot's own rows have op
// r; the mark on anything else is of the stream beside it.
func (s *source) isSnapshot() bool {
	switch string(s.at[srcSnapshot]) {
	case "", "null", "false", `"false"`, `"incremental"`:
		return false
	}
	return true
}

func (s *source) time() time.Time {
	if us := intOf(s.at[srcTSMicros]); us > 0 {
		return time.UnixMicro(us).UTC()
	}
	if ms := intOf(s.at[srcTSMillis]); ms > 0 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

func (s *source) tx(t *texts) string {
	if !isNull(s.at[srcGTID]) {
		return t.of(s.at[srcGTID])
	}
	return t.of(s.at[srcTxID])
}

func (s *source) position(t *texts) cdc.Position {
	p := cdc.Position{File: t.of(s.at[srcFile])}
	if pos := intOf(s.at[srcPos]); pos > 0 {
		p.Pos = uint64(pos)
	}
	if isNull(s.at[srcLSN]) {
		return p
	}
	if lsn, err := strconv.ParseUint(view(s.at[srcLSN]), 10, 64); err == nil {
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
	for _, part := range [...][]byte{s.at[srcConnector], s.at[srcName], s.at[srcDB], s.at[srcSchema], s.at[srcTable]} {
		key = append(append(key, part...), ',')
	}
	if t, ok := d.tables.get(key); ok {
		return t
	}
	return d.tables.put(bytes.Clone(key), newTable(s))
}

func newTable(s *source) *table {
	t := &table{source: textOf(s.at[srcName]), connector: cdc.Connector(textOf(s.at[srcConnector]))}
	t.id.Table = textOf(s.at[srcTable])
	if mysqlLike(t.connector) || isNull(s.at[srcSchema]) {
		t.id.Schema = textOf(s.at[srcDB])
	} else {
		t.id.Database, t.id.Schema = textOf(s.at[srcDB]), textOf(s.at[srcSchema])
	}
	return t
}
