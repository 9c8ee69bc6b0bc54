package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"invalidator/cdc"
)

func example(t *testing.T) *Feeder {
	t.Helper()
	f, err := New(Config{Name: "Shop-1", Hosts: []string{"db:5432"}, Database: "shop", User: "cdc"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNewFillsInDefaults(t *testing.T) {
	f := example(t)
	if f.cfg.Publication != "invalidator" || f.cfg.Slot != "invalidator_shop_1" {
		t.Errorf("publication %q, slot %q", f.cfg.Publication, f.cfg.Slot)
	}
	if s := defaultSlot(strings.Repeat("ä", 100)); len(s) != 63 || !slotName.MatchString(s) {
		t.Errorf("slot %q", s)
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := New(Config{Hosts: []string{"db"}, Slot: "My-Slot"}, slog.New(slog.DiscardHandler))
	for _, want := range []string{"no name", `host "db" is not host:port`, "no database", "no user", `slot "My-Slot"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, err := New(Config{Name: "x"}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no hosts") {
		t.Errorf("got %v", err)
	}
}

func TestConfirmOnlyRises(t *testing.T) {
	f := example(t)
	for _, step := range []struct{ told, want string }{
		{"0/10", "0/10"}, {"0/5", "0/10"}, {"", "0/10"}, {"nonsense", "0/10"}, {"1/0", "1/0"},
	} {
		f.Confirm(cdc.Position{LSN: step.told})
		if got := lsn(f.confirmed.Load()).String(); got != step.want {
			t.Errorf("after %q: %s, want %s", step.told, got, step.want)
		}
	}
}

func TestServersThatCannotBeRead(t *testing.T) {
	f := example(t)
	for _, c := range []struct {
		server serverInfo
		want   string
	}{
		{serverInfo{Version: 150018, WALLevel: "logical"}, ""},
		{serverInfo{Version: 140010, WALLevel: "logical"}, "source Shop-1: the server is Postgres 14 (Postgres 15 or newer is needed)"},
		{serverInfo{Version: 150018, WALLevel: "replica"}, "source Shop-1: the server's wal_level is replica: its log does not hold rows (ALTER SYSTEM SET wal_level = logical, then restart the server)"},
	} {
		got := ""
		if err := f.fit(c.server); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestSlotsThatCannotBeRead(t *testing.T) {
	f := example(t)
	for _, c := range []struct {
		what string
		slot *slotInfo
		want string
	}{
		{"none yet", nil, ""},
		{"good", &slotInfo{Plugin: "pgoutput", Database: "shop", WALStatus: "extended"}, ""},
		{"another plugin", &slotInfo{Plugin: "wal2json", Database: "shop"}, "plugin"},
		{"another database", &slotInfo{Plugin: "pgoutput", Database: "x"}, "belongs to database x"},
	} {
		err := f.fitSlot(c.slot)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.what, err)
		}
	}
}

func TestSlotsThatAreDead(t *testing.T) {
	for _, c := range []struct {
		slot slotInfo
		want string
	}{
		{slotInfo{WALStatus: "reserved"}, ""},
		{slotInfo{WALStatus: "unreserved"}, ""},
		{slotInfo{WALStatus: "lost"}, "wal_status lost"},
		{slotInfo{WALStatus: "lost", Invalid: "wal_removed"}, "wal_removed"},
		{slotInfo{WALStatus: "reserved", Invalid: "idle_timeout"}, "idle_timeout"},
	} {
		if got := c.slot.dead(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c.slot, got)
		}
	}
}

func TestServerAnswersAreExplained(t *testing.T) {
	f := example(t)
	for _, c := range []struct {
		code  string
		hint  string
		retry bool
	}{
		{"28P01", "check user and password", false},
		{"28000", "pg_hba.conf", false},
		{"3D000", "check the source's database", false},
		{"42501", `ALTER ROLE "cdc" REPLICATION`, false},
		{"53400", "raise max_replication_slots", false},
		{"53300", "max_wal_senders", true},
		{"55006", "another process reads slot invalidator_shop_1", true},
		{"57P01", "the server's own hint", true},
		{"XX000", "the server's own hint", true},
		{"42601", "the server's own hint", false},
		{"", "the server's own hint", false},
	} {
		err := f.explain(during("trying", fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: c.code, Message: "no", Hint: "the server's own hint"})))
		if !strings.Contains(err.Hint, c.hint) || err.Retryable() != c.retry {
			t.Errorf("%s: hint %q, retryable %v", c.code, err.Hint, err.Retryable())
		}
		if want := "trying: no (SQLSTATE " + c.code + ")"; err.Err.Error() != want {
			t.Errorf("got %q, want %q", err.Err, want)
		}
	}
	if err := f.explain(errors.New("two\n\tlines")); err.Error() != "source Shop-1: two lines" || !err.Retryable() {
		t.Errorf("got %v, retryable %v", err, err.Retryable())
	}
}

func TestLeftAt(t *testing.T) {
	const history = "1\t0/3000000\tno recovery target specified\n\n2\t1/50\tno recovery target specified\n"
	for timeline, want := range map[int32]string{1: "0/3000000", 2: "1/50", 3: ""} {
		at, ok := leftAt(history, timeline)
		if ok != (want != "") || ok && at.String() != want {
			t.Errorf("timeline %d: %v, %v", timeline, at, ok)
		}
	}
}
