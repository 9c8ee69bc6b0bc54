//go:build integration

// Package types walks cdc/TYPES.md on the real databases: what a feeder hands over, and what comes back from our envelope,
// is what the table says; and what the table says is what the server itself shows.
package types

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"invalidator/cdc"
	"invalidator/cdc/cdctest"
	"invalidator/cdc/envelope"
	"invalidator/cdc/mysql"
	"invalidator/cdc/postgres"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var connectors = map[harness.Kind]cdc.Connector{harness.MySQL: cdc.MySQL, harness.MariaDB: cdc.MariaDB, harness.Postgres: cdc.Postgres}

// vectors are the rows for one server, each type and value once.
func vectors(t *testing.T, kind harness.Kind) []cdctest.Vector {
	var all []cdctest.Vector
	seen := map[string]bool{}
	for _, v := range cdctest.Types(t) {
		for _, conn := range v.Connectors() {
			if id := v.Type + "=" + v.Insert; conn == connectors[kind] && !seen[id] {
				seen[id] = true
				all = append(all, v)
			}
		}
	}
	return all
}

// one is a Handler that takes the first insert.
type one struct {
	started chan struct{}
	change  *cdc.RowChange
}

var errEnough = errors.New("enough")

func (o *one) Started(context.Context, cdc.Position) error { close(o.started); return nil }

func (o *one) Change(_ context.Context, c *cdc.RowChange) error {
	o.change = c.Clone()
	return errEnough
}

func (o *one) Lost(_ context.Context, l cdc.Loss) error {
	return fmt.Errorf("nothing was lost: %+v", l)
}

func (o *one) Joined(_ context.Context, t []cdc.TableID, _ cdc.Position) error {
	return fmt.Errorf("no table joined: %v", t)
}

func (o *one) Committed(context.Context, cdc.Position, time.Time) error { return nil }

func feeder(t *testing.T, d *harness.Database) cdc.Feeder {
	include, err := cdc.NewInclude([]string{d.Schema + ".types"})
	if err != nil {
		t.Fatal(err)
	}
	host := []string{services.Addr(strings.ToUpper(string(d.Kind)))}
	var f cdc.Feeder
	if d.Kind == harness.Postgres {
		f, err = postgres.New(postgres.Config{Name: d.Name, Hosts: host, Database: d.Name, User: "cdc", Password: func() string { return "cdc-password" }, Include: include}, slog.New(slog.DiscardHandler))
	} else {
		f, err = mysql.New(mysql.Config{Name: d.Name, Hosts: host, User: "cdc", Password: func() string { return "cdc-password" }, Include: include}, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// read makes a table of a column for each vector, inserts one row, and returns what the feeder reads of it.
func read(t *testing.T, d *harness.Database, all []cdctest.Vector) *cdc.RowChange {
	columns, values := []string{"id integer primary key"}, []string{"1"}
	for i, v := range all {
		columns = append(columns, fmt.Sprintf("c%d %s null", i, v.Type))
		values = append(values, v.Insert)
	}
	d.Do(t, "CREATE TABLE types ("+strings.Join(columns, ", ")+")")
	if d.Kind == harness.Postgres {
		d.Do(t, "ALTER TABLE types OWNER TO app")
	}
	o := &one{started: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- feeder(t, d).Run(ctx, cdc.Position{}, o) }()
	select {
	case <-o.started:
	case err := <-done:
		t.Fatal(err)
	}
	d.Do(t, "INSERT INTO types VALUES ("+strings.Join(values, ", ")+")")
	if err := <-done; !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	return o.change
}

func TestTypesOfTheDatabases(t *testing.T) {
	for _, kind := range harness.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			d, all := harness.NewDatabase(t, kind), vectors(t, kind)
			c := read(t, d, all)
			key, value, err := envelope.Encode(c, envelope.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			decoder, err := envelope.NewDecoder(envelope.Config{Select: func(string, cdc.TableID) *cdc.Columns { return c.Columns }})
			if err != nil {
				t.Fatal(err)
			}
			back, _, err := decoder.Decode(envelope.Record{Key: key, Value: value})
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range all {
				want := v.Value
				if kind == harness.MariaDB && want.Kind == cdc.JSON {
					want.Kind = cdc.Text // MariaDB's json is a longtext
				}
				at := c.Columns.Index(fmt.Sprintf("c%d", i))
				if got := c.After[at]; got != want {
					t.Errorf("%s %s: the feeder hands over %+v; want %+v", v.Type, v.Insert, got, want)
				}
				if got := back.After[at]; got != want {
					t.Errorf("%s %s: our envelope brings back %+v; want %+v", v.Type, v.Insert, got, want)
				}
				if got := shown(t, d, i, v); got != v.Value.Text() && got != v.Value.S {
					t.Errorf("%s %s: the server shows %q; want %q", v.Type, v.Insert, got, v.Value.Text())
				}
			}
		})
	}
}

// shown is the server's own text of a value.
func shown(t *testing.T, d *harness.Database, i int, v cdctest.Vector) string {
	column := fmt.Sprintf("c%d", i)
	switch {
	case d.Kind == harness.Postgres: // a cast to text would show a boolean in words and take a char's padding off
		column = "format('%s', " + column + ")"
	case strings.HasPrefix(v.Type, "bit"): // a plain SELECT shows its bytes
		column += "+0"
	}
	conn, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	zone := "SET time_zone = '+00:00'"
	if d.Kind == harness.Postgres {
		zone = "SET TimeZone = 'UTC'"
	}
	if _, err := conn.ExecContext(t.Context(), zone); err != nil {
		t.Fatal(err)
	}
	var s string
	if err := conn.QueryRowContext(t.Context(), "SELECT "+column+" FROM types").Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}
