package mysql

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// jsonDecoder turns MySQL's binary JSON into text. The driver can do that, but only for a column of a row of an event that it
// parsed with the right option. So we keep one such event, parsed from a log of our own making, and decode each document as
// the one column of its one row.
type jsonDecoder struct{ event replication.RowsEvent }

func newJSONDecoder() (*jsonDecoder, error) {
	var d jsonDecoder
	p := replication.NewBinlogParser()
	p.SetRenderJSONAsMySQLText(true)
	p.SetRowsEventDecodeFunc(func(e *replication.RowsEvent, _ []byte) error {
		d.event = *e
		return nil
	})
	lengths := make([]byte, replication.WRITE_ROWS_EVENTv2)
	format := binary.LittleEndian.AppendUint16(nil, 4)
	format = append(format, make([]byte, 50+4)...) // the version of no server, so that no checksum is looked for
	format = append(append(format, byte(replication.EventHeaderSize)), lengths...)
	for _, e := range []struct {
		kind replication.EventType
		body []byte
	}{{replication.FORMAT_DESCRIPTION_EVENT, format}, {replication.WRITE_ROWS_EVENTv2, nil}} {
		header := make([]byte, replication.EventHeaderSize)
		header[4] = byte(e.kind)
		binary.LittleEndian.PutUint32(header[9:], uint32(len(header)+len(e.body)))
		if _, err := p.Parse(append(header, e.body...)); err != nil {
			return nil, fmt.Errorf("preparing to decode JSON: %w", err)
		}
	}
	d.event.ColumnCount, d.event.ColumnBitmap1 = 1, []byte{1}
	d.event.Table = &replication.TableMapEvent{ColumnCount: 1, ColumnType: []byte{mysql.MYSQL_TYPE_JSON}, ColumnMeta: []uint16{4}}
	return &d, nil
}

// text is the document as SELECT shows it. An empty one, which INSERT IGNORE may leave, is MySQL's null.
func (d *jsonDecoder) text(doc string) (string, error) {
	if doc == "" {
		return "null", nil
	}
	if !isFinite(doc) {
		return "", errors.New("its offsets do not fit")
	}
	row := append([]byte{0}, binary.LittleEndian.AppendUint32(nil, uint32(len(doc)))...)
	e := d.event
	if err := e.DecodeData(0, append(row, doc...)); err != nil {
		return "", err
	}
	if len(e.Rows) == 1 && len(e.Rows[0]) == 1 {
		if s, ok := e.Rows[0][0].(string); ok {
			return spaced(s, numbersOf(doc))
		}
	}
	return "", errors.New("no document")
}
