package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// member is a process that last spoke so long ago, and then had had its mappings in force for a while.
type member struct {
	id, role, group, fingerprint string
	silent, inForce, ran         time.Duration // ran: before it last spoke; 0: an hour
	failing, recalled, wrong     []string
}

func (m member) record(now time.Time) processRecord {
	at := now.Add(-m.silent)
	return processRecord{V: 1, Role: m.role, Host: "h", Group: m.group, Started: at.Add(-cmp.Or(m.ran, time.Hour)), At: at,
		Mappings: mappingsRecord{m.fingerprint, at.Add(-m.inForce), m.failing, m.recalled}, Wrong: m.wrong}
}

// Each process is shown as it said it was; two sets of mappings, a process that fell silent, a file that fails and a fleet without a
// worker are errors, and a change on its way is a note.
func TestFleet(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct {
		name    string
		members []member
		want    []string // the processes, with ! where they are lost, and a part of each finding
	}{
		{"one set", []member{{id: "f-1", role: "feeder", fingerprint: "aa", inForce: time.Hour}, {id: "w-2", role: "worker", fingerprint: "aa"}, {id: "w-1", role: "worker", fingerprint: "aa"}},
			[]string{"w-1", "w-2", "f-1"}},
		{"a change on its way", []member{{id: "w-1", role: "worker", fingerprint: "aa", inForce: time.Hour}, {id: "w-2", role: "worker", fingerprint: "bb", inForce: 60 * second}},
			[]string{"w-1", "w-2", "note: fleet fleet: runs 2 sets of mappings: aa (worker w-1), bb (worker w-2); a change"}},
		{"two sets for over a minute", []member{{id: "w-1", role: "worker", fingerprint: "aa", inForce: time.Hour}, {id: "f-1", role: "feeder", fingerprint: "bb", inForce: 61 * second}},
			[]string{"w-1", "f-1", "error: fleet fleet: runs 2 sets of mappings: aa (worker w-1), bb (feeder f-1), for more than a minute"}},
		{"a new third set beside two old ones", []member{{id: "w-1", role: "worker", fingerprint: "aa", inForce: time.Hour},
			{id: "w-2", role: "worker", fingerprint: "bb", inForce: time.Hour}, {id: "w-3", role: "worker", fingerprint: "cc"}},
			[]string{"w-1", "w-2", "w-3", "error: fleet fleet: runs 3 sets of mappings: aa (worker w-1), bb (worker w-2), cc (worker w-3), for"}},
		{"one with another set is lost", []member{{id: "w-1", role: "worker", fingerprint: "aa", inForce: time.Hour}, {id: "w-2", role: "worker", fingerprint: "bb", inForce: time.Hour, silent: 11 * second}},
			[]string{"w-1", "w-2!", "error: worker w-2: lost: it last spoke at 2026-11-30 09:59:49"}},
		{"silent for a while", []member{{id: "w-1", role: "worker", fingerprint: "aa", silent: 10 * second}}, []string{"w-1"}},
		{"its clock is ahead", []member{{id: "w-1", role: "worker", fingerprint: "aa", silent: -time.Minute}}, []string{"w-1"}},
		{"long gone", []member{{id: "w-1", role: "worker", fingerprint: "aa"}, {id: "w-2", role: "worker", fingerprint: "bb", inForce: time.Hour, silent: 61 * time.Minute}},
			[]string{"w-1"}},
		{"of another fleet", []member{{id: "w-1", role: "worker", fingerprint: "aa", inForce: time.Hour}, {id: "w-2", group: "other", role: "worker", fingerprint: "bb", inForce: time.Hour}},
			[]string{"w-1"}},
		{"files that fail", []member{{id: "w-1", role: "worker", fingerprint: "aa", failing: []string{"a.yaml", "b.yaml"}, recalled: []string{"b.yaml"}}},
			[]string{"w-1", "error: worker w-1: a.yaml is not in force as it stands now: its last good form is, or nothing",
				"error: worker w-1: b.yaml is not in force as it stands now: its last good form is, as the state topic had it"}},
		{"a source that stands", []member{{id: "w-1", role: "worker", fingerprint: "aa"}, {id: "f-1", role: "feeder", fingerprint: "aa", wrong: []string{"source shop: access denied"}}},
			[]string{"w-1", "f-1", "error: feeder f-1: source shop: access denied"}},
		{"no worker", []member{{id: "f-1", role: "feeder", fingerprint: "aa"}}, []string{"f-1", "error: fleet fleet: no worker runs"}},
		{"the worker is lost", []member{{id: "w-1", role: "worker", fingerprint: "aa", silent: time.Minute}},
			[]string{"w-1!", "error: worker w-1: lost", "error: fleet fleet: no worker runs"}},
		{"one has started since, for one that is lost", []member{{id: "w-1", role: "worker", fingerprint: "aa", silent: time.Minute}, {id: "w-2", role: "worker", fingerprint: "aa", ran: 59 * second}},
			[]string{"w-1!", "w-2", "warning: worker w-1: lost: it last spoke at 2026-11-30 09:59:00 (it was killed, hangs, or cannot reach Kafka); worker w-2 has started since"}},
		{"one has started since, and two are lost", []member{{id: "w-1", role: "worker", fingerprint: "aa", silent: time.Minute}, {id: "w-2", role: "worker", fingerprint: "aa", silent: time.Minute}, {id: "w-3", role: "worker", fingerprint: "aa", ran: second}},
			[]string{"w-1!", "w-2!", "w-3", "warning: worker w-1: lost", "error: worker w-2: lost"}},
		{"who has started since is a feeder, or ran before", []member{{id: "w-1", role: "worker", fingerprint: "aa", silent: time.Minute}, {id: "w-2", role: "worker", fingerprint: "aa", ran: 61 * second}, {id: "f-1", role: "feeder", fingerprint: "aa", ran: second}},
			[]string{"w-1!", "w-2", "f-1", "error: worker w-1: lost"}},
		{"nothing", nil, []string{"error: fleet fleet: no worker runs"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
			all := map[string]spoken{}
			for _, m := range tc.members {
				m.group = cmp.Or(m.group, "fleet")
				all[m.id] = spoken{processRecord: m.record(now)}
			}
			f := fleetOf("fleet", all, nil, now)
			var got []string
			for _, p := range f.Processes {
				if p.Lost {
					p.ID += "!"
				}
				got = append(got, p.ID)
			}
			for _, x := range f.Findings {
				line := x.String()
				if i := len(got); i < len(tc.want) && strings.HasPrefix(line, tc.want[i]) {
					line = tc.want[i]
				}
				got = append(got, line)
			}
			if d := gocmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A process whose clock is behind is alive while it speaks, and one that does not speak is lost. A record that cannot be read is
// told, and the others are shown.
func TestReadFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := changelogtest.Start(t)
		state, err := changelog.OpenState(cluster.Options, cluster.Names.State)
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		put := func(id string, value any) {
			b, err := json.Marshal(value)
			if err == nil {
				err = state.Put(context.Background(), "process/"+id, b)
			}
			if err != nil {
				t.Error(err)
			}
		}
		behind := member{role: "worker", group: "fleet", fingerprint: "aa", silent: 30 * time.Minute, inForce: time.Hour}
		put("killed", behind.record(time.Now()))
		put("newer", map[string]any{"v": 2})
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				put("behind", behind.record(time.Now()))
				select {
				case <-time.After(processEvery):
				case <-ctx.Done():
				}
			}
		}()
		synctest.Wait()
		f, err := readFleet(t.Context(), cluster.Options, cluster.Names.State, "fleet")
		cancel()
		<-done
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Processes) != 2 || f.Processes[0].ID != "behind" || f.Processes[0].Lost || f.Processes[1].ID != "killed" || !f.Processes[1].Lost {
			t.Errorf("the processes are %+v", f.Processes)
		}
		if len(f.Findings) != 2 || !strings.Contains(f.Findings[0].What, "process/newer: format 2 is unknown") || f.Findings[1].Where != "worker killed" {
			t.Errorf("found is %v", f.Findings)
		}
	})
}

// Where nothing was ever started, and where no broker answers, that is said.
func TestReadFleetOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := changelogtest.Start(t)
		if _, err := readFleet(t.Context(), cluster.Options, "none", "fleet"); err == nil || !strings.Contains(err.Error(), "topic none: it does not exist (feed and run make it when they start)") {
			t.Errorf("without the topic: %v", err)
		}
		o := cluster.Options
		o.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody listens") }
		if _, err := readFleet(t.Context(), o, cluster.Names.State, "fleet"); err == nil || !strings.Contains(err.Error(), "nobody listens") {
			t.Errorf("without a broker: %v", err)
		}
	})
}
