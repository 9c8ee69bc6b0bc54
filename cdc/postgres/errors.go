package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"invalidator/cdc"
)

// SQLSTATEs that an operator can do something about.
const (
	stateInvalidPassword   = "28P01"
	stateInvalidAuth       = "28000"
	stateNoDatabase        = "3D000"
	stateNoPrivilege       = "42501"
	stateUndefinedObject   = "42704"
	stateUndefinedTable    = "42P01"
	stateDuplicateObject   = "42710"
	stateNotInPrerequisite = "55000"
	stateInUse             = "55006"
	stateLockTimeout       = "55P03"
	stateCanceled          = "57014"
	stateLimitExceeded     = "53400"
	stateTooMany           = "53300"
	stateCannotConnect     = "57P03"
	stateUndefinedFile     = "58P01"
	stateUniqueViolation   = "23505"
)

// handlerError carries an error of the Handler's own past everything that explains errors of the server.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }
func (e *handlerError) Unwrap() error { return e.err }

func handlerFailed(err error) error {
	if err == nil {
		return nil
	}
	return &handlerError{err}
}

// failed explains an error of the decoder itself, and leaves what the server answered to explain.
func (d *decoder) failed(err error, doing string) error {
	var h *handlerError
	var s *cdc.SourceError
	var asking *step
	if errors.As(err, &h) || errors.As(err, &s) || errors.As(err, &asking) {
		return err
	}
	return &cdc.SourceError{Source: d.source, At: d.origin.position(d.done), Err: fmt.Errorf("%s: %w", doing, err)}
}

// pgError is the server's answer in err, or nil.
func pgError(err error) *pgconn.PgError {
	var pg *pgconn.PgError
	errors.As(err, &pg)
	return pg
}

// isState reports whether err is an answer of the server with this SQLSTATE.
func isState(err error, state string) bool {
	pg := pgError(err)
	return pg != nil && pg.Code == state
}

// isTaken reports whether somebody else made the same thing first, be it at the same moment.
func isTaken(err error) bool {
	return isState(err, stateDuplicateObject) || isState(err, stateUniqueViolation)
}

// runError is what Run returns for err: the Handler's own error as it stands, a *cdc.SourceError for everything else.
func (f *Feeder) runError(err error) error {
	var h *handlerError
	if errors.As(err, &h) {
		return h.err
	}
	return f.explain(err)
}

// explain makes one line of an error that an operator can act on.
func (f *Feeder) explain(err error) *cdc.SourceError {
	var known *cdc.SourceError
	if errors.As(err, &known) {
		return known
	}
	e := &cdc.SourceError{Source: f.cfg.Name, Err: err}
	pg := pgError(err)
	if pg == nil {
		e.Retry = true // a connection that was refused or cut
		e.Err = oneLine{err}
		if errors.Is(err, context.DeadlineExceeded) {
			e.Hint = "the server did not answer in time"
		}
		return e
	}
	e.Err = &serverError{doing: doing(err), pg: pg}
	e.Hint, e.Retry = f.advice(pg)
	return e
}

// advice says what to do about an answer of the server, and whether waiting may do.
func (f *Feeder) advice(pg *pgconn.PgError) (hint string, retry bool) {
	switch pg.Code {
	case stateInvalidPassword:
		return "check user and password of the source", false
	case stateInvalidAuth:
		return fmt.Sprintf("check that role %s may log in, and that pg_hba.conf lets it in from here", f.cfg.User), false
	case stateNoDatabase:
		return "check the source's database", false
	case stateNoPrivilege:
		return fmt.Sprintf("replication needs ALTER ROLE %s REPLICATION; on Amazon RDS, GRANT rds_replication TO %[1]s", quote(f.cfg.User)), false
	case stateNotInPrerequisite:
		return pg.Hint, false
	case stateInUse:
		return fmt.Sprintf("another process reads slot %s, or the server has not yet noticed that one ended", f.cfg.Slot), true
	case stateLimitExceeded:
		return "raise max_replication_slots and restart the server, or drop a slot that nobody reads: SELECT slot_name, active FROM pg_replication_slots", false
	case stateTooMany:
		return "raise max_wal_senders and max_connections, or close connections", true
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "08", "40", "53", "57", "58", "XX": // connection, rollback, resources, operator's intervention, system, internal
		return pg.Hint, true
	}
	return pg.Hint, false
}

// serverError is an answer of the server as one line.
type serverError struct {
	doing string
	pg    *pgconn.PgError
}

func (e *serverError) Error() string {
	s := fmt.Sprintf("%s (SQLSTATE %s)", e.pg.Message, e.pg.Code)
	if e.doing != "" {
		s = e.doing + ": " + s
	}
	return s
}

func (e *serverError) Unwrap() error { return e.pg }

// step says what was being done when err came, for an error that is going to be shortened.
type step struct {
	doing string
	err   error
}

func during(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &step{doing, err}
}

func (s *step) Error() string { return s.doing + ": " + s.err.Error() }
func (s *step) Unwrap() error { return s.err }

func doing(err error) string {
	var s *step
	if errors.As(err, &s) {
		return s.doing
	}
	return ""
}

// oneLine shows an error that lists several, each on a line of its own, as one.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
