package mysql

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// fail makes the error with which a source stands still.
func (f *Feeder) fail(err error, hint string, retry bool) *cdc.SourceError {
	return &cdc.SourceError{Source: f.cfg.Name, Err: err, Hint: hint, Retry: retry}
}

// gap makes the error of a position that cannot be resumed.
func (f *Feeder) gap(at cdc.Position, err error) *cdc.SourceError {
	return f.gapOf(at, &cdc.GapError{Err: err})
}

func (f *Feeder) gapOf(at cdc.Position, gap *cdc.GapError) *cdc.SourceError {
	return &cdc.SourceError{Source: f.cfg.Name, At: at, Err: gap,
		Hint: "changes are lost; flush the pools that this source feeds, then accept the gap to go on at the log's present end"}
}

// classify turns what a connection failed with into what the operator has to know. A *cdc.SourceError stays as it is.
func (f *Feeder) classify(err error, at cdc.Position) error {
	if se := (*cdc.SourceError)(nil); errors.As(err, &se) {
		return err
	}
	if errors.Is(err, errBadEvent) {
		return &cdc.SourceError{Source: f.cfg.Name, At: at, Err: plain(err), Retry: true,
			Hint: "the log is damaged there, or holds what this program does not know; it is read again"}
	}
	me := (*mysql.MyError)(nil)
	if !errors.As(err, &me) {
		// Nothing that the server said: the network, a timeout, a shutdown.
		return &cdc.SourceError{Source: f.cfg.Name, At: at, Err: plain(err), Hint: "is the server up and reachable?", Retry: true}
	}
	e := &cdc.SourceError{Source: f.cfg.Name, At: at, Err: plain(err)}
	switch me.Code {
	case mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG, mariaSlaveSameID:
		return f.classifyDump(e, me.Message)
	case mysql.ER_ACCESS_DENIED_ERROR, mysql.ER_DBACCESS_DENIED_ERROR:
		e.Hint = "check user and password of this source, and from which hosts the user may come"
	case mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR, mysql.ER_TABLEACCESS_DENIED_ERROR:
		e.Hint = f.grantHint()
	case mysql.ER_NO_BINARY_LOGGING:
		e.Hint = "start the server with log_bin and binlog_format=ROW"
	default: // too many connections, a shutdown, an overloaded server
		e.Retry = true
	}
	return e
}

func (f *Feeder) grantHint() string {
	return fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO %s", quote(f.cfg.User))
}

// grantHintFor knows that MariaDB has a privilege of its own for asking about replicas, since 10.5.
func (f *Feeder) grantHintFor(s *server) string {
	if s.maria && s.number.atLeast(10, 5) {
		return strings.Replace(f.grantHint(), "REPLICATION CLIENT,", "REPLICATION CLIENT, REPLICA MONITOR,", 1)
	}
	return f.grantHint()
}

// mariaSlaveSameID is MariaDB's own number for the older of two readers, since 10.6; before that it was 1236.
const mariaSlaveSameID = 4052

// What error 1236 may mean. The texts are the servers' own, in lower case; one number stands for all of them.
var (
	anotherReaderTexts = []string{"same server_uuid", "same server_id", "same server id"}
	gapTexts           = []string{
		"purged",                        // both: GTIDs that are needed are gone
		"could not find first log file", // file gone, or never there
		"could not find gtid state",     // MariaDB: too old
		"not in the master's binlog",    // MariaDB: other history
		"not in the source's binlog",    //
		"has more gtids than the",       // MySQL: other history
		"greater than file size",        // file begun anew
		"position > file size",          //
		"bogus data in log event",       // an offset that is no event's start
		"failed to find",                // MariaDB: a file of its index
		"could not open log file",       //
		"exceeded max_allowed_packet",   // at an offset that is no event's start; of a GTID see classifyDump
	}
)

func (f *Feeder) classifyDump(e *cdc.SourceError, message string) error {
	text := strings.ToLower(message)
	for _, s := range anotherReaderTexts {
		if strings.Contains(text, s) {
			e.Err = fmt.Errorf("another reader uses server_id %d: %w", f.cfg.ServerID, e.Err)
			e.Hint = "give each reader of this server a server_id of its own"
			e.Retry = true
			return e
		}
	}
	if strings.Contains(text, "max_allowed_packet") && e.At.GTIDSet != "" {
		e.Hint = "raise max_allowed_packet on the server above the size of its largest row"
		return e
	}
	for _, s := range gapTexts {
		if strings.Contains(text, s) {
			return f.gap(e.At, e.Err)
		}
	}
	e.Hint = "the server could not read its log; see its error log"
	return e
}

// plain drops the stack traces that the driver's errors print, and keeps the chain.
func plain(err error) error { return plainError{err} }

type plainError struct{ error }

func (e plainError) Error() string { return strings.TrimSpace(e.error.Error()) }
func (e plainError) Unwrap() error { return e.error }
