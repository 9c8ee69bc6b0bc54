package envelope

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"invalidator/cdc"
)

// origin is all of a change that its source and transaction blocks tell, but for its ordinal and how its values stand. Changes of
// one origin have the same texts there. That two times of one instant may differ, by their zone, costs only the writing.
type origin struct {
	source    string
	connector cdc.Connector
	table     cdc.TableID
	snapshot  bool
	committed time.Time
	position  cdc.Position
	tx        string
}

// originText is an origin as records show it. What it holds is of the last change that was asked for.
type originText struct {
	last        origin
	known       bool   // the texts are of last
	source      []byte // ,"source":{… up to our marker's ordinal
	transaction []byte // ,"transaction":{… up to its total_order; ,"transaction":null for an unknown one
}

// of gives the texts of a change's origin, good until the next call.
func (t *originText) of(c *cdc.RowChange) (*originText, error) {
	o := origin{c.Source, c.Connector, c.TableID, c.Op == cdc.Read, c.CommitTime, c.Position, c.Tx}
	if t.known && t.last == o {
		return t, nil
	}
	t.last, t.known = o, false
	var err error
	if t.source, err = o.appendSource(t.source[:0]); err == nil {
		t.transaction, err = o.appendTransaction(t.transaction[:0])
	}
	t.known = err == nil
	return t, err
}

// appendSource appends Debezium's source block, and our marker in it up to the ordinal.
func (o *origin) appendSource(b []byte) ([]byte, error) {
	b = append(b, `,"source":{"version":"invalidator-1"`...)
	snapshot := "false"
	if o.snapshot {
		snapshot = "true"
	}
	db, schema := o.table.Schema, ""
	if !mysqlLike(o.connector) {
		db, schema = o.table.Database, o.table.Schema
	}
	fields := [...]struct{ name, text string }{
		{`,"connector":`, string(o.connector)}, {`,"name":`, o.source}, {`,"snapshot":`, snapshot},
		{`,"db":`, db}, {`,"schema":`, schema}, {`,"table":`, o.table.Table},
	}
	for _, f := range fields {
		if f.name == `,"schema":` && mysqlLike(o.connector) {
			continue
		}
		var err error
		if b, err = appendString(append(b, f.name...), f.text); err != nil {
			return b, fmt.Errorf("writing source.%s: %w", strings.Trim(f.name, `,":`), err)
		}
	}
	b, err := o.appendPosition(appendTimes(b, o.committed))
	return append(b, `,"invalidator":{"v":`+markerVersion+`,"ordinal":`...), err
}

func mysqlLike(c cdc.Connector) bool { return c == cdc.MySQL || c == cdc.MariaDB }

// appendPosition appends where the change stands in its log, in Debezium's fields.
func (o *origin) appendPosition(b []byte) ([]byte, error) {
	var err error
	if mysqlLike(o.connector) {
		if b, err = appendOptional(append(b, `,"gtid":`...), o.tx); err == nil {
			b, err = appendOptional(append(b, `,"file":`...), o.position.File)
		}
		if err != nil {
			return b, fmt.Errorf("writing the position: %w", err)
		}
		return strconv.AppendUint(append(b, `,"pos":`...), o.position.Pos, 10), nil
	}
	b = append(b, `,"txId":`...)
	if isJSONInt(o.tx) {
		b = append(b, o.tx...)
	} else if b, err = appendOptional(b, o.tx); err != nil {
		return b, fmt.Errorf("writing the transaction: %w", err)
	}
	b = append(b, `,"lsn":`...)
	hi, lo, _ := strings.Cut(o.position.LSN, "/")
	h, herr := strconv.ParseUint(hi, 16, 32)
	l, lerr := strconv.ParseUint(lo, 16, 32)
	if herr != nil || lerr != nil {
		return append(b, `null`...), nil
	}
	return strconv.AppendUint(b, h<<32|l, 10), nil
}

func appendOptional(b []byte, s string) ([]byte, error) {
	if s == "" {
		return append(b, `null`...), nil
	}
	return appendString(b, s)
}

func (o *origin) appendTransaction(b []byte) ([]byte, error) {
	b = append(b, `,"transaction":`...)
	if o.tx == "" {
		return append(b, `null`...), nil
	}
	b, err := appendString(append(b, `{"id":`...), o.tx)
	if err != nil {
		return b, fmt.Errorf("writing the transaction: %w", err)
	}
	return append(b, `,"total_order":`...), nil
}

// timeText is a time as records show it: of the last that was asked for.
type timeText struct {
	at   time.Time
	text []byte
}

// of gives a time's text, good until the next call.
func (t *timeText) of(at time.Time) []byte {
	if at != t.at || t.text == nil {
		t.at, t.text = at, appendTimes(t.text[:0], at)
	}
	return t.text
}

// appendTimes appends ,"ts_ms":…,"ts_us":…; nothing for an unknown time.
func appendTimes(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return appendIntField(appendIntField(b, `,"ts_ms"`, t.UnixMilli()), `,"ts_us"`, t.UnixMicro())
}
