package mysql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// server is what one server said about itself when it was connected to.
type server struct {
	addr       string
	version    string
	number     version
	maria      bool
	id         string            // server_uuid; MariaDB: server_id
	gtid       bool              // positions are GTIDs
	vars       map[string]string // its global variables, as far as we ask
	collations map[uint64]string // collation id -> charset

	lower   bool         // names are kept in lower case, whatever case they are given in
	include *cdc.Include // what is read of it
}

// tableID names a table as the server keeps its name.
func (s *server) tableID(schema, table string) cdc.TableID {
	if s.lower {
		schema, table = strings.ToLower(schema), strings.ToLower(table)
	}
	return cdc.TableID{Schema: schema, Table: table}
}

// included reports whether a table is ours, and of a database alone (Table is empty) whether one of its tables could be.
func (s *server) included(id cdc.TableID) bool {
	if id.Table == "" {
		return s.include.MatchSchema(id.Schema)
	}
	return s.include.Match(id.Schema, id.Table)
}

// folded is an Include for names as the server keeps them.
func (s *server) folded(include *cdc.Include) *cdc.Include {
	if s.lower {
		return include.Fold()
	}
	return include
}

func (s *server) connector() cdc.Connector {
	if s.maria {
		return cdc.MariaDB
	}
	return cdc.MySQL
}

func (s *server) flavor() string {
	if s.maria {
		return mysql.MariaDBFlavor
	}
	return mysql.MySQLFlavor
}

func (s *server) name() string {
	if s.maria {
		return "MariaDB"
	}
	return "MySQL"
}

// conn is a connection for questions. It dies with the context that it was opened under.
type conn struct {
	*client.Conn
	server *server
	close  func()
}

// connect opens the first host that answers and asks it who it is. A host that refuses us ends the search: another would not
// know the password better.
func (f *Feeder) connect(ctx context.Context) (*conn, error) {
	var failed []string
	var last *cdc.SourceError
	for _, addr := range f.cfg.Hosts {
		c, err := f.connectTo(ctx, addr)
		if err == nil {
			return c, nil
		}
		if !errors.As(err, &last) || !last.Retry {
			return nil, err
		}
		failed = append(failed, last.Err.Error())
	}
	return nil, f.fail(errors.New(strings.Join(failed, "; ")), last.Hint, true)
}

func (f *Feeder) connectTo(ctx context.Context, addr string) (*conn, error) {
	c, err := f.dialServer(ctx, addr)
	if err != nil {
		return nil, f.classify(fmt.Errorf("connecting to %s as %s: %w", addr, f.cfg.User, err), cdc.Position{})
	}
	if c.server, err = interview(c, addr); err != nil {
		c.close()
		return nil, f.classify(fmt.Errorf("asking %s about itself: %w", addr, err), cdc.Position{})
	}
	c.server.include = c.server.folded(f.cfg.Include)
	f.heard(c.server)
	return c, nil
}

// collation makes names and labels come in UTF-8. The driver's own choice is one that MariaDB does not know, which then takes its default:
// latin1, before 11.6.
const collation = "utf8mb4_general_ci"

// dialServer logs in. The connection is cut when ctx ends: a blocked read returns at once.
func (f *Feeder) dialServer(ctx context.Context, addr string) (*conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var raw net.Conn
	stop := func() bool { return true }
	cc, err := client.ConnectWithDialer(dialCtx, "tcp", addr, f.cfg.User, f.cfg.Password(), "",
		func(c context.Context, network, addr string) (net.Conn, error) {
			nc, err := (&net.Dialer{}).DialContext(c, network, addr)
			if err != nil {
				return nil, err
			}
			raw = &timedConn{Conn: nc}
			stop = context.AfterFunc(ctx, func() { nc.Close() })
			return raw, nil
		},
		func(c *client.Conn) error {
			c.SetTLSConfig(f.tlsFor(addr))
			return c.SetCollation(collation)
		})
	if err != nil {
		stop()
		if raw != nil {
			raw.Close()
		}
		return nil, err
	}
	return &conn{Conn: cc, close: sync.OnceFunc(func() { stop(); cc.Close() })}, nil
}

// tlsFor is the configured TLS for one host, or nil.
func (f *Feeder) tlsFor(addr string) *tls.Config {
	if f.cfg.TLS == nil {
		return nil
	}
	t := f.cfg.TLS.Clone()
	if t.ServerName == "" {
		t.ServerName, _, _ = net.SplitHostPort(addr)
	}
	if t.CipherSuites == nil {
		for _, s := range tls.CipherSuites() {
			t.CipherSuites = append(t.CipherSuites, s.ID)
		}
		t.CipherSuites = append(t.CipherSuites, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA)
	}
	return t
}

// The variables that an interview asks for; a server that lacks one leaves it out.
const askedVariables = `'log_bin','binlog_format','binlog_row_image','binlog_row_metadata','gtid_mode','server_uuid',` +
	`'server_id','log_slave_updates','log_replica_updates','lower_case_table_names','binlog_row_value_options','read_only',` +
	`'binlog_expire_logs_seconds','expire_logs_days','binlog_transaction_compression','sync_binlog','binlog_group_commit_sync_delay',` +
	`'wsrep_on','group_replication_group_name'`

func interview(c *conn, addr string) (*server, error) {
	s := &server{addr: addr, vars: map[string]string{}, collations: map[uint64]string{}}
	rows, err := c.rows("SELECT VERSION()")
	if err != nil {
		return nil, err
	}
	s.version = rows[0][0]
	s.number = parseVersion(s.version)
	s.maria = s.number.maria
	if rows, err = c.rows("SHOW GLOBAL VARIABLES WHERE Variable_name IN (" + askedVariables + ") OR Variable_name LIKE 'rpl_semi_sync_%'"); err != nil {
		return nil, err
	}
	for _, r := range rows {
		s.vars[strings.ToLower(r[0])] = r[1]
	}
	s.id, s.gtid = s.vars["server_uuid"], s.vars["gtid_mode"] == "ON"
	if s.maria {
		s.id, s.gtid = s.vars["server_id"], true
	}
	s.lower = s.vars["lower_case_table_names"] != "0" && s.vars["lower_case_table_names"] != ""
	// MariaDB names some collations (uca1400) once for several charsets: their ids stand in the other table, since 10.10.
	rows, err = c.rows("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY")
	if err != nil {
		rows, err = c.rows("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
	}
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if id, err := strconv.ParseUint(r[0], 10, 64); err == nil {
			s.collations[id] = r[1]
		}
	}
	return s, nil
}

// rows asks in the text protocol; NULL is the empty string. There are rows, or a table may be empty: the caller knows.
func (c *conn) rows(query string) ([][]string, error) {
	r, err := c.Execute(query)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := make([][]string, r.RowNumber())
	for i := range out {
		out[i] = make([]string, r.ColumnNumber())
		for j := range out[i] {
			text, err := r.GetString(i, j)
			if err != nil {
				return nil, err
			}
			out[i][j] = strings.Clone(text) // it lies in memory that goes back to the driver's pool
		}
	}
	return out, nil
}

// first asks the first of the queries that the server knows. The error is the last one's.
func (c *conn) first(queries []string) (rows []map[string]string, err error) {
	for _, q := range queries {
		if rows, err = c.table(q); err == nil || !isMyError(err) {
			return rows, err
		}
	}
	return nil, err
}

// table asks for rows by the names of their columns.
func (c *conn) table(query string) ([]map[string]string, error) {
	r, err := c.Execute(query)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := make([]map[string]string, r.RowNumber())
	for i := range out {
		out[i] = map[string]string{}
		for j, field := range r.Fields {
			text, err := r.GetString(i, j)
			if err != nil {
				return nil, err
			}
			out[i][string(field.Name)] = strings.Clone(text)
		}
	}
	return out, nil
}

// quote writes a string literal. Backslashes are escaped too, which is right in every sql_mode but NO_BACKSLASH_ESCAPES,
// where a name with a backslash is not found.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

// timedConn gives each single read its own deadline, so that the time in which nobody reads does not count.
type timedConn struct{ net.Conn }

func (c *timedConn) Read(b []byte) (int, error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}
