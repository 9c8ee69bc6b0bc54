//go:build integration

package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"invalidator/cdc"
)

// The server is never told that more is safe than Confirm said: what was not confirmed comes again after a crash. A clean restart
// sends nothing again.
func TestF11NothingIsConfirmedBeforeConfirm(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	r := d.start(f, cdc.Position{}, unconfirmed)
	begin, _ := parseLSN(r.started.LSN)
	d.exec("INSERT INTO u SELECT generate_series(1, 10)")
	if n := len(r.caughtUp()); n != 10 {
		t.Fatalf("%d changes", n)
	}
	done := r.position()
	d.eventually("a status tells of what was received", func() bool {
		return d.text("SELECT (write_lsn >= $1::pg_lsn)::text FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid WHERE slot_name = $2", done.LSN, f.cfg.Slot) == "true"
	})
	if at := d.flushed(f.cfg.Slot); at != begin {
		t.Fatalf("the slot is at %s, nothing above %s was confirmed", at, begin)
	}
	r.stop()

	r = d.start(f, r.started, unconfirmed)
	if n := len(r.caughtUp()); n != 10 {
		t.Fatalf("%d changes after a start from the saved position", n)
	}
	f.Confirm(done)
	f.Confirm(r.started) // a late word changes nothing
	d.eventually("the slot is where Confirm said", func() bool { return d.flushed(f.cfg.Slot).String() == done.LSN })
	saved := r.stop()
	if at, _ := parseLSN(saved.LSN); d.flushed(f.cfg.Slot) > at {
		t.Errorf("the slot is at %s, above %s", d.flushed(f.cfg.Slot), saved.LSN)
	}

	d.slotIsFree(f.cfg.Slot)
	r = d.start(f, saved)
	same(t, shown(r.caughtUp()), "")
	r.stop()
}

// A Handler that stands still for longer than the server's patience costs no connection, and nothing is lost: status messages go on.
func TestF3SlowHandlerKeepsItsConnection(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY, body text)")
	f := d.feeder("public.u")
	f.timing.silence = time.Second
	gate := make(chan struct{})
	r := d.start(f, cdc.Position{}, func(r *run) { r.gate = gate })
	backend := r.streaming()
	const rows = 3000
	d.exec(
		"INSERT INTO u SELECT 0, repeat('x', 20 * 1024 * 1024)", // larger than the queue
		"INSERT INTO u SELECT i, repeat('x', 16 * 1024) FROM generate_series(1, "+strconv.Itoa(rows)+") i")
	stood := d.text("SELECT clock_timestamp()::text")
	d.eventually("the server has heard of us for three times its patience", func() bool {
		return d.text("SELECT coalesce(max((reply_time > $1::timestamptz + '3s')::text), 'gone') FROM pg_stat_replication WHERE pid = $2::int", stood, backend) == "true"
	})
	close(gate)
	changes := r.caughtUp()
	if len(changes) != rows+1 {
		t.Fatalf("%d changes", len(changes))
	}
	for i, c := range changes {
		if c.After[0].Text() != strconv.Itoa(i) {
			t.Fatalf("change %d is of row %s", i, c.After[0].Text())
		}
	}
	if now := d.text("SELECT active_pid::text FROM pg_replication_slots WHERE slot_name = $1", f.cfg.Slot); now != backend {
		t.Errorf("another connection: %s, was %s", now, backend)
	}
	r.stop()
}

// Run ends at once while the Handler blocks.
func TestStopWhileHandlerBlocks(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	r := d.start(f, cdc.Position{}, func(r *run) { r.gate = make(chan struct{}) })
	d.exec("INSERT INTO u VALUES (1)")
	r.stop()
	r = d.start(f, r.started)
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	r.stop()
}

// A connection that the server cuts in the middle of work may be opened again, and the cut transaction comes whole.
func TestCutConnection(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	gate := make(chan struct{}, 10)
	r := d.start(f, cdc.Position{}, func(r *run) { r.gate = gate })
	d.exec("INSERT INTO u SELECT generate_series(1, 3)")
	gate <- struct{}{}
	d.eventually("the slot has a reader, and loses it", func() bool {
		return d.text("SELECT coalesce(bool_or(pg_terminate_backend(active_pid)), false)::text FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL", f.cfg.Slot) == "true"
	})
	close(gate)
	err := <-r.ended
	wantError(t, err, false, true)
	t.Log(err)
	r = d.start(f, r.started)
	same(t, shown(r.caughtUp()), "c u - {id=1}\nc u - {id=2}\nc u - {id=3}")
	r.stop()
}

// A Handler's error ends Run as it stands.
func TestHandlerError(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	full := errors.New("no room")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.Run(ctx, cdc.Position{}, refusing{full}); err != full {
		t.Errorf("got %v", err)
	}
}

type refusing struct{ err error }

func (refusing) Lost(context.Context, cdc.Loss) error                      { return nil }
func (refusing) Joined(context.Context, []cdc.TableID, cdc.Position) error { return nil }

func (r refusing) Started(context.Context, cdc.Position) error              { return r.err }
func (r refusing) Change(context.Context, *cdc.RowChange) error             { return r.err }
func (r refusing) Committed(context.Context, cdc.Position, time.Time) error { return r.err }

// A server that says nothing any more is given up, though its connection stands.
func TestSilentServer(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	p := newProxy(t, d.addr)
	cfg := d.config("public.u")
	cfg.Hosts = []string{p.addr()}
	f := newFeeder(t, cfg)
	f.timing.silence = time.Second
	r := d.start(f, cdc.Position{})
	r.streaming()
	p.freeze()
	select {
	case err := <-r.ended:
		wantError(t, err, false, true, "silent for 1s")
	case <-time.After(patience):
		t.Fatal("the silence was not noticed")
	}
}

// proxy forwards connections, until it is frozen: then it takes in and passes on nothing.
type proxy struct {
	listener net.Listener
	frozen   chan struct{}
	work     sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, frozen: make(chan struct{})}
	done, end := context.WithCancel(context.Background())
	p.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			context.AfterFunc(done, func() { _ = in.Close(); _ = out.Close() })
			p.work.Go(func() { p.forward(done, in, out) })
			p.work.Go(func() { p.forward(done, out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		end()
		p.work.Wait()
	})
	return p
}

func (p *proxy) forward(done context.Context, to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-p.frozen:
			<-done.Done()
			return
		default:
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = to.Close()
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) addr() string { return p.listener.Addr().String() }
func (p *proxy) freeze()      { close(p.frozen) }

// A server that stops is noticed soon, while the Handler blocks too, and need not wait for it: a server that is shut down
// waits until all that it has sent is confirmed. The next Run loses nothing.
func TestF3ServerStops(t *testing.T) {
	s := newServer(t, 17)
	d := s.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY, body text)")
	for what, rows := range map[string]string{"little": "SELECT 1, ''", "more than is held": "SELECT i, repeat('x', 1000000) FROM generate_series(1, 40) i"} {
		d.exec("TRUNCATE u")
		f := lookOften(d.feeder("public.u"))
		gate := make(chan struct{})
		r := d.start(f, cdc.Position{}, unconfirmed, func(r *run) { r.gate = gate })
		r.streaming()
		saved := r.started
		d.exec("INSERT INTO u " + rows)
		n := d.text("SELECT count(*)::text FROM u")
		d.eventually("something is sent", func() bool {
			return d.text("SELECT (sent_lsn > $1::pg_lsn)::text FROM pg_stat_replication", saved.LSN) == "true"
		})
		begin := time.Now()
		s.stop()
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s: the server waited for us for %v", what, took)
		}
		wantError(t, <-r.ended, false, true)
		wantError(t, d.fails(f, r.position()), false, true, "connect")
		s.start()
		d = s.db("postgres")
		again := d.start(f, saved)
		inserted := 0
		for _, c := range again.caughtUp() {
			if c.Op == cdc.Insert {
				inserted++
			}
		}
		same(t, strconv.Itoa(inserted), n)
		again.stop()
		d.slotIsFree(f.cfg.Slot)
		d.exec("SELECT pg_drop_replication_slot('" + f.cfg.Slot + "')")
	}
}

// While only other tables and other databases are written, the slot moves on and the server keeps a few segments of log at
// most; how much is told. A row that comes then is not lost.
func TestF1IdleSlotMovesOn(t *testing.T) {
	s := newServer(t, 17)
	d := s.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE unpublished (x text)", "CREATE DATABASE other", "INSERT INTO u VALUES (1)")
	other := s.db("other")
	other.exec("CREATE TABLE x (x text)")
	f := lookOften(d.feeder("public.u"))
	r := d.start(f, cdc.Position{})
	r.streaming()
	const segment = 16 << 20
	begin := d.text("SELECT pg_current_wal_lsn()::text")
	for range 10 { // 200 MB in all
		d.exec("INSERT INTO unpublished SELECT repeat('x', 1000) FROM generate_series(1, 10000)")
		other.exec("INSERT INTO x SELECT repeat('x', 1000) FROM generate_series(1, 10000)")
		end, _ := parseLSN(d.text("SELECT pg_current_wal_lsn()::text"))
		d.eventually("the slot has followed, and the server keeps little", func() bool {
			d.exec("SELECT pg_log_standby_snapshot()") // what the server does by itself every 15 seconds
			return d.flushed(f.cfg.Slot) >= end && f.Status().RetainedBytes < 3*segment
		})
	}
	if wrote := d.text("SELECT (pg_wal_lsn_diff(pg_current_wal_lsn(), $1::pg_lsn) > 200e6)::text", begin); wrote != "true" {
		t.Error("too little was written")
	}
	d.exec("UPDATE u SET id = 2")
	same(t, shown(r.caughtUp()), "u u {id=1} {id=2}")
	r.stop()
}

// An idle source is known to be up to date: by the server's word alone, and with a heartbeat its log moves on.
func TestStatusWhileIdle(t *testing.T) {
	d := newServer(t, 17).db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := lookOften(d.feeder("public.u"))
	gate := make(chan struct{})
	r := d.start(f, cdc.Position{}, func(r *run) { r.gate = gate })
	begin := time.Now()
	d.eventually("it is up to date", func() bool {
		s := f.Status()
		return s.Seen.After(begin) && s.At.After(begin) && s.LagBytes == 0 && s.SafeBytes == -1
	})
	d.exec("INSERT INTO u SELECT generate_series(1, 1000)")
	d.eventually("it lags", func() bool { return f.Status().LagBytes > 50_000 })
	lagged := f.Status().Seen
	close(gate)
	d.eventually("it is up to date again", func() bool { s := f.Status(); return s.LagBytes == 0 && s.Seen.After(lagged) })
	saved := r.stop()

	cfg := f.cfg
	cfg.Heartbeat = 20 * time.Millisecond
	d.slotIsFree(cfg.Slot)
	r = d.start(newFeeder(t, cfg), saved)
	from, _ := parseLSN(saved.LSN)
	d.eventually("the slot moves on by itself", func() bool { return d.flushed(cfg.Slot) > from+1000 })
	same(t, shown(r.changes), "")
	r.stop()
}
