package mysql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"
)

// dump is one connection over which a server sends its binary log. It belongs to one goroutine, and dies with the context that
// it was opened under.
type dump struct {
	*conn
	parser *replication.BinlogParser

	statementsOnly bool // events that may hold rows come without their content
}

// A dump's purpose says under which names it runs. A server ends an older dump that bears the same names: a reader that comes
// anew ends the one that it was, and a look aside must not end the reader.
type purpose int

const (
	toFeed purpose = iota
	toLook         // reads a part of the log again, or ahead
)

// openDump starts a dump behind a place. An error of the server's may come here or with the first event.
func (f *Feeder) openDump(ctx context.Context, srv *server, at *tracker, why purpose) (*dump, error) {
	c, err := f.dialServer(ctx, srv.addr)
	if err != nil {
		return nil, err
	}
	d := &dump{conn: c, parser: replication.NewBinlogParser()}
	d.parser.SetFlavor(srv.flavor())
	d.parser.SetVerifyChecksum(true)
	d.parser.SetRowsEventDecodeFunc(keepRows)
	id := f.cfg.ServerID
	if why != toFeed {
		id = deriveServerID(fmt.Sprintf("%s %d %d", f.cfg.Name, id, why), 2_000_000_000)
	}
	if err := d.begin(srv, at, id); err != nil {
		c.close()
		return nil, fmt.Errorf("starting the binlog dump: %w", err)
	}
	return d, nil
}

// begin says who we are and asks for the log.
func (d *dump) begin(srv *server, at *tracker, id uint32) error {
	settings := []string{
		fmt.Sprintf("SET SESSION net_write_timeout = %d", int(netWriteTimeout.Seconds())), // bear with a reader that is held back
		"SET @master_binlog_checksum = @@GLOBAL.binlog_checksum, @source_binlog_checksum = @@GLOBAL.binlog_checksum",
		fmt.Sprintf("SET @master_heartbeat_period = %d, @source_heartbeat_period = %[1]d", heartbeatPeriod),
		fmt.Sprintf("SET @slave_uuid = '%s', @replica_uuid = '%[1]s'", readerUUID(id)),
	}
	if srv.maria {
		settings = append(settings, "SET @mariadb_slave_capability = 4") // we know its GTIDs
		if at.domains != nil {
			settings = append(settings, "SET @slave_connect_state = "+quote(domainsText(at.domains)), "SET @slave_gtid_strict_mode = 1")
		}
	}
	for _, s := range settings {
		r, err := d.Execute(s)
		if err != nil {
			return err
		}
		r.Close()
	}
	if err := d.command(registration(id)); err != nil {
		return err
	}
	if _, err := d.ReadOKPacket(); err != nil {
		return err
	}
	return d.command(dumpRequest(at, id))
}

// readerUUID is what MySQL knows a reader by, before the number. It is made of the number, so that one number is one reader.
func readerUUID(id uint32) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "cdc reader %d", id)).String()
}

// shortHost is a host's name as long as both servers take it.
func shortHost(name string) string { return name[:min(len(name), 60)] }

// command sends a packet, whose first four bytes are the protocol's.
func (d *dump) command(body []byte) error {
	d.ResetSequence()
	return d.WritePacket(append(make([]byte, 4), body...))
}

// registration is COM_REGISTER_SLAVE: what SHOW REPLICAS tells of us.
func registration(id uint32) []byte {
	host, _ := os.Hostname()
	host = shortHost(host)
	b := binary.LittleEndian.AppendUint32([]byte{mysql.COM_REGISTER_SLAVE}, id)
	b = append(append(b, byte(len(host))), host...)
	b = append(b, 0, 0)                      // user and password: none of the others' business
	return append(b, make([]byte, 2+4+4)...) // port, rank, the master's id
}

// dumpRequest asks for everything behind a place: COM_BINLOG_DUMP_GTID for MySQL's GTIDs, else COM_BINLOG_DUMP, in which
// MariaDB ignores the place where it was told GTIDs.
func dumpRequest(at *tracker, id uint32) []byte {
	le := binary.LittleEndian
	if at.executed != nil {
		set := at.executed.Encode()
		b := le.AppendUint16([]byte{mysql.COM_BINLOG_DUMP_GTID}, 0)
		b = le.AppendUint32(b, id)
		b = le.AppendUint32(b, 0) // no file
		b = le.AppendUint64(b, 4)
		return append(le.AppendUint32(b, uint32(len(set))), set...)
	}
	file, pos := at.file, max(at.pos, 4)
	if at.domains != nil {
		file, pos = "", 0
	}
	b := le.AppendUint32([]byte{mysql.COM_BINLOG_DUMP}, uint32(pos))
	b = le.AppendUint16(b, 0)
	return append(le.AppendUint32(b, id), file...)
}

// errBadEvent marks bytes in the place of an event that are none: a damaged log, or an offset that is no event's start.
var errBadEvent = errors.New("the log holds bytes that are no event")

// next reads one event. It blocks; an idle server sends heartbeats.
func (d *dump) next() (*replication.BinlogEvent, error) {
	var p packet
	if err := d.ReadPacketTo(&p); err != nil {
		return nil, err
	}
	data := p.data
	switch {
	case len(data) == 0:
		return nil, errors.New("the server sent an empty packet")
	case data[0] == mysql.ERR_HEADER:
		return nil, d.HandleErrorPacket(data)
	case data[0] != mysql.OK_HEADER:
		return nil, errors.New("the server ended the dump")
	}
	data = data[1:]
	if len(data) > replication.EventHeaderSize && replication.EventType(data[4]) == replication.ROTATE_EVENT {
		return rotation(data)
	}
	if d.statementsOnly && len(data) > replication.EventHeaderSize && !mayBeStatement(replication.EventType(data[4])) {
		e := &replication.BinlogEvent{Header: &replication.EventHeader{}}
		return e, e.Header.Decode(data)
	}
	e, err := d.parser.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadEvent, err)
	}
	return e, nil
}

func mayBeStatement(t replication.EventType) bool {
	switch t {
	case replication.FORMAT_DESCRIPTION_EVENT, replication.QUERY_EVENT, replication.MARIADB_QUERY_COMPRESSED_EVENT, replication.GTID_EVENT,
		replication.GTID_TAGGED_LOG_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.MARIADB_GTID_EVENT:
		return true
	}
	return false
}

// packet is memory for one event, and for nothing else after it: rows are handed over as they lie in it. It is made once, by the
// size that the event's header tells; a large one would otherwise be there several times over while it grows.
type packet struct{ data []byte }

func (p *packet) Write(b []byte) (int, error) {
	if p.data == nil {
		const sizeAt = 1 + 9 // behind the protocol's mark
		n := len(b)
		if n >= sizeAt+4 && b[0] == mysql.OK_HEADER {
			n = max(n, min(1+int(binary.LittleEndian.Uint32(b[sizeAt:])), maxEvent))
		}
		p.data = make([]byte, 0, n)
	}
	p.data = append(p.data, b...)
	return len(b), nil
}

// maxEvent is the largest event that a server can write: max_allowed_packet's limit.
const maxEvent = 1<<30 + 1<<16

// rotation reads a rotate event here: one that the server makes up carries a checksum as the connection asked, whatever the
// file that it comes before or behind has.
func rotation(data []byte) (*replication.BinlogEvent, error) {
	e := &replication.BinlogEvent{RawData: data, Header: &replication.EventHeader{}}
	if err := e.Header.Decode(data); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadEvent, err)
	}
	const sum = replication.BinlogChecksumLength
	if n := len(data) - sum; n >= replication.EventHeaderSize+8 && crc32.ChecksumIEEE(data[:n]) == binary.LittleEndian.Uint32(data[n:]) {
		data = data[:n]
	}
	body := data[replication.EventHeaderSize:]
	if len(body) < 8 {
		return nil, fmt.Errorf("%w: a rotate event of %d bytes", errBadEvent, len(data))
	}
	e.Event = &replication.RotateEvent{Position: binary.LittleEndian.Uint64(body), NextLogName: body[8:]}
	return e, nil
}
