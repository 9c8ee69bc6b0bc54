package postgres

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"invalidator/cdc"
)

const (
	// connectTimeout bounds one attempt at one host, with the login.
	connectTimeout = 10 * time.Second

	// queryTimeout bounds one question to the catalogue.
	queryTimeout = 10 * time.Second
)

// pinned are our sessions' settings. What a role or a database sets for its sessions would otherwise change the text of
// values, and with it keys. lc_monetary stays the database's: a money value shows as the application sees it.
var pinned = map[string]string{
	"client_encoding":             "UTF8",
	"DateStyle":                   "ISO",
	"IntervalStyle":               "postgres",
	"TimeZone":                    "UTC",
	"bytea_output":                "hex",
	"extra_float_digits":          "1", // the shortest text that reads back as the same number: the server's default
	"statement_timeout":           "0",
	"lock_timeout":                "0",
	"idle_session_timeout":        "0",
	"standard_conforming_strings": "on",
}

// connConfig is how to reach one host. Nothing of the process's environment (PGHOST, PGOPTIONS) takes part.
func (f *Feeder) connConfig(host string) (*pgx.ConnConfig, error) {
	name, portText, err := net.SplitHostPort(host)
	if err != nil {
		return nil, fmt.Errorf("reading host %q: %w", host, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("reading the port of host %q: %w", host, err)
	}
	c, err := pgx.ParseConfig("host=localhost port=5432 user=x password=x dbname=x sslmode=disable target_session_attrs=any")
	if err != nil {
		return nil, fmt.Errorf("preparing a connection: %w", err)
	}
	c.Host, c.Port, c.Database, c.User, c.Password = name, uint16(port), f.cfg.Database, f.cfg.User, f.cfg.Password()
	c.Fallbacks, c.ConnectTimeout, c.RuntimeParams = nil, connectTimeout, maps.Clone(pinned)
	c.RuntimeParams["application_name"] = "invalidator/" + f.cfg.Name // how a successor knows our connections
	c.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}).DialContext
	if f.cfg.TLS != nil {
		c.TLSConfig = f.cfg.TLS.Clone()
		if c.TLSConfig.ServerName == "" {
			c.TLSConfig.ServerName = name
		}
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing prepared: a pooler may stand between
	c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	if f.cfg.Standby {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsStandby
	}
	return c, nil
}

func (f *Feeder) connectTo(ctx context.Context, host string) (*pgx.Conn, error) {
	c, err := f.connConfig(host)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, c)
}

// connectReplication opens the connection that can stream.
func (f *Feeder) connectReplication(ctx context.Context, host string) (*pgconn.PgConn, error) {
	c, err := f.connConfig(host)
	if err != nil {
		return nil, err
	}
	c.RuntimeParams["replication"] = "database"
	c.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(f.timing.silence.Milliseconds(), 10)
	conn, err := pgconn.ConnectConfig(ctx, &c.Config)
	return conn, during("opening a replication connection to "+host, err)
}

// closeConn closes a connection, and waits for pgconn's own goroutine where that is closing it already.
func closeConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
	select {
	case <-conn.CleanupDone():
	case <-ctx.Done():
	}
}

// quote makes an SQL identifier of names.
func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

func (f *Feeder) problem(err error, hint string) *cdc.SourceError {
	return &cdc.SourceError{Source: f.cfg.Name, Err: err, Hint: hint}
}
