package postgres

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

func (c *checker) wants(t *testing.T, severity cdc.Severity, texts ...string) {
	t.Helper()
	if len(c.found) != len(texts) {
		t.Errorf("found %v, want %q", c.found, texts)
		return
	}
	for i, text := range texts {
		if f := c.found[i]; f.Severity != severity || !strings.Contains(f.What, text) || f.Hint == "" {
			t.Errorf("found %v, want %q", f, text)
		}
	}
	c.found = nil
}

func TestTransportFindings(t *testing.T) {
	c := &checker{f: example(t)}
	for host, want := range map[string][]string{"127.0.0.1:5432": nil, "[::1]:5432": nil, "localhost:1": nil, "db.example:5432": {"without TLS"}, "10.0.0.1:5432": {"without TLS"}} {
		c.transport(host)
		c.wants(t, cdc.SeverityWarning, want...)
	}
	c.f.cfg.TLS = &tls.Config{}
	c.transport("db.example:5432")
	c.wants(t, cdc.SeverityWarning)
	c.f.cfg.TLS = &tls.Config{InsecureSkipVerify: true}
	c.transport("db.example:5432")
	c.wants(t, cdc.SeverityWarning, "does not verify")
}

func TestRetentionFindings(t *testing.T) {
	c := &checker{f: example(t)}
	hour := load{WALBytes: 3600 << 20, WALSeconds: 3600} // 1 MB a second
	c.retention(settings{"max_slot_wal_keep_size": "-1"}, hour, nil)
	c.wants(t, cdc.SeverityWarning, "is -1")
	c.f.cfg.MaxTTL = 24 * time.Hour
	c.retention(settings{"max_slot_wal_keep_size": "3600", "wal_keep_size": "7200"}, hour, nil)
	c.wants(t, cdc.SeverityWarning, "kept for 7200 MB of log: at the average rate of the server, it is lost when the feeder stands still for 2h0m0s, which is less than cache.max_ttl (24h0m0s)")
	c.retention(settings{"max_slot_wal_keep_size": "86401"}, hour, nil)
	c.retention(settings{"max_slot_wal_keep_size": "1"}, load{WALBytes: 1 << 40, WALSeconds: 60}, nil) // measured too short
	c.wants(t, cdc.SeverityWarning)
	c.retention(settings{"max_slot_wal_keep_size": "90000", "idle_replication_slot_timeout": "60"}, hour, &slotInfo{Retained: 30 << 20, Safe: 20 << 20})
	c.wants(t, cdc.SeverityWarning, "idle_replication_slot_timeout is 1m0s", "it keeps 30 MB of log for it, and 20 MB more may be written")
	c.retention(settings{"max_slot_wal_keep_size": "-1"}, hour, &slotInfo{Retained: 2 << 30, Safe: -1})
	c.wants(t, cdc.SeverityWarning, "is -1", "the server keeps 2048 MB of log")
}

func TestServerFindings(t *testing.T) {
	c := &checker{f: example(t)}
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	c.transactions(load{Now: now, OpenBy: 7, OpenSince: now.Add(-time.Hour), PreparedNames: []string{"'a''b'"}, PreparedSince: now.Add(-time.Hour)})
	c.wants(t, cdc.SeverityWarning, "transaction 'a''b' was prepared and left (the oldest at 2030-01-01T11:00:00Z)", "open since 2030-01-01T11:00:00Z")
	c.transactions(load{Now: now, OpenBy: 7, OpenSince: now.Add(-time.Minute)})
	c.wants(t, cdc.SeverityWarning)

	c.standbys(settings{}, load{Standbys: 1}, serverInfo{Version: 160000}, nil)
	c.wants(t, cdc.SeverityWarning, "before 17 none has our slot")
	c.standbys(settings{"synchronized_standby_slots": "a"}, load{Standbys: 1}, serverInfo{Version: 170000}, &slotInfo{Failover: true})
	c.standbys(settings{}, load{}, serverInfo{Version: 160000}, nil)
	c.wants(t, cdc.SeverityWarning)

	for version, old := range map[int]bool{150012: true, 150013: false, 160008: true, 160009: false, 170004: true, 170005: false, 180000: false} {
		c.minor(version)
		if got := len(c.found) == 1; got != old {
			t.Errorf("release %d: %v", version, c.found)
		}
		c.found = nil
	}
	c.room(settings{"max_replication_slots": "2", "max_wal_senders": "2"}, load{Slots: 2, Senders: 2}, nil)
	c.wants(t, cdc.SeverityError, "all 2 replication slots", "all 2 processes")
	c.room(settings{"max_replication_slots": "2", "max_wal_senders": "2"}, load{Slots: 2, Senders: 2}, &slotInfo{Reader: 5})
	c.wants(t, cdc.SeverityError)
}

func TestWaitFindings(t *testing.T) {
	c := &checker{f: example(t)}
	s := settings{"synchronous_standby_names": "a, b", "synchronous_commit": "on"}
	c.waits(s)
	c.wants(t, cdc.SeverityWarning, "held back until readers see it")
	c.f.cfg.Standby, c.f.cfg.Settle = true, time.Second
	c.waits(s)
	c.wants(t, cdc.SeverityWarning, "a late standby can make a delete come too early")
	c.waits(settings{"synchronous_standby_names": "a, b", "synchronous_commit": "local"})
	c.waits(settings{"synchronous_standby_names": "", "synchronous_commit": "on"})
	c.wants(t, cdc.SeverityWarning)
}

func TestSkew(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, c := range []struct{ begin, now, end, want int }{{100, 150, 200, 0}, {100, 100, 200, 0}, {100, 40, 200, -60}, {100, 900, 200, 700}} {
		if got := skewOf(at(c.begin), at(c.now), at(c.end)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
