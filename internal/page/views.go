package page

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/sink"
)

// State is the one colour of something.
type State string

const (
	Fresh  State = "fresh"
	Late   State = "late"   // nothing is lost, and something is behind
	Stands State = "stands" // a person must act
)

// lateFrom is the age of the oldest unfinished record from which the cache counts as late, in seconds. Below it ages are not read.
const lateFrom = 10

// fleetView is the fleet as the templates show it.
type fleetView struct {
	app.Fleet
	State   State
	Behind  string // the one number
	Why     []string
	Sources []sourceView
	Lagging []app.PartitionLag // those that are behind, the most first
	Errors  []app.Finding
	Warns   []app.Finding
	Running []app.Work
}

type sourceView struct {
	Name       string
	Partitions int
	Records    int64 // that are not finished
	Age        int64
	Gaps       int
	State      State
}

func newFleetView(f app.Fleet, err error) fleetView {
	v := fleetView{Fleet: f, State: Fresh}
	for _, x := range f.Findings {
		if x.Severity == string(cdc.SeverityError) {
			v.Errors = append(v.Errors, x)
		} else {
			v.Warns = append(v.Warns, x)
		}
	}
	sources, age := map[string]*sourceView{}, int64(0)
	for _, l := range f.Lags {
		name := cmp.Or(l.Source, "others")
		s := sources[name]
		if s == nil {
			s = &sourceView{Name: name, State: Fresh}
			sources[name] = s
		}
		s.Partitions++
		s.Records += l.Lag
		s.Age = max(s.Age, l.Age)
		if age = max(age, l.Age); l.Lag > 0 {
			v.Lagging = append(v.Lagging, l)
		}
	}
	for _, g := range f.Gaps {
		if s := sources[g.Source]; s != nil {
			s.Gaps++
		}
	}
	slices.SortFunc(v.Lagging, func(a, b app.PartitionLag) int {
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(b.Lag, a.Lag), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		s := *sources[name]
		switch {
		case s.Gaps > 0:
			s.State = Stands
		case s.Age >= lateFrom:
			s.State = Late
		}
		v.Sources = append(v.Sources, s)
	}
	for _, w := range f.Works {
		if w.State == app.WorkRunning {
			v.Running = append(v.Running, w)
		}
	}
	v.judge(age, err)
	return v
}

// judge gives the one number, the one colour, and why.
func (v *fleetView) judge(age int64, err error) {
	v.Behind = fmt.Sprintf("under %d s", lateFrom)
	if age >= lateFrom {
		v.State, v.Behind = Late, seconds(age)
		v.Why = append(v.Why, "the oldest change that is not deleted everywhere was written "+seconds(age)+" ago")
	}
	nodes := 0
	for _, o := range v.Owing {
		if o.Owes == "node" {
			nodes++
		}
	}
	if nodes > 0 {
		v.State = Late
		v.Why = append(v.Why, plural(nodes, "node owes", "nodes owe")+" deletes")
	}
	if n := len(v.Paused); n > 0 {
		v.State = Late
		v.Why = append(v.Why, plural(n, "pool is", "pools are")+" paused")
	}
	if len(v.Errors) > 0 {
		v.State = Stands
		v.Why = append(v.Why, plural(len(v.Errors), "thing needs", "things need")+" a person")
	}
	if err != nil {
		v.State, v.Behind = Stands, "not known"
		v.Why = append(v.Why, "the fleet cannot be looked at: "+err.Error())
	}
	if len(v.Why) == 0 {
		v.Why = []string{"every change is deleted on every copy as it comes"}
	}
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func seconds(n int64) string { return (time.Duration(n) * time.Second).String() }

// ringView is the ring of today, and where a key lives.
type ringView struct {
	Known  bool
	Epoch  int64
	Since  time.Time
	Resize bool
	Zones  []string
	Shards []shardView

	Key    string // that was asked for
	Wrong  string // it is no key
	Shard  string
	Hash   int64
	Hot    int
	Copies []copyView
}

type shardView struct {
	ID    string
	Cells [][]nodeView // by zone
}

type nodeView struct {
	Addr, Role string
	State      State
	Why        string
}

type copyView struct{ Node, Key, Role string }

// ring lays the nodes out by shard and zone.
func (p *Page) ring(f *app.Fleet, key string) ringView {
	var v ringView
	if p.s.View == nil || p.s.View() == nil {
		return v
	}
	view := p.s.View()
	r := view.Topology.Record()
	v.Known, v.Epoch, v.Since, v.Resize = true, r.Epoch, r.At, view.Topology.HasPrevious()
	zones := map[string]bool{}
	for _, s := range r.Shards {
		zones[s.Primary.Zone] = true
		for _, n := range s.Replicas {
			zones[n.Zone] = true
		}
	}
	v.Zones = slices.Sorted(maps.Keys(zones))
	states := nodeStates(f)
	for _, s := range r.Shards {
		row := shardView{ID: s.ID, Cells: make([][]nodeView, len(v.Zones))}
		add := func(zone, addr, role string) {
			i, _ := slices.BinarySearch(v.Zones, zone)
			n := states[addr]
			row.Cells[i] = append(row.Cells[i], nodeView{addr, role, cmp.Or(n.State, Fresh), n.Why})
		}
		add(s.Primary.Zone, s.Primary.Addr, "primary")
		for _, n := range s.Replicas {
			role := "replica"
			if n.Seeding {
				role = "seeding"
			}
			add(n.Zone, n.Addr, role)
		}
		v.Shards = append(v.Shards, row)
	}
	if v.Key = key; key == "" {
		return v
	}
	if _, err := sink.CheckMetaKey(view.Topology.KeyPrefix() + key); err != nil {
		v.Wrong = err.Error()
		return v
	}
	v.Hash, v.Shard = view.Topology.Locate(key)
	v.Hot = view.Hot.Copies(key)
	for i, c := range view.Topology.AppendCopies(nil, key, v.Hot) {
		role := "copy"
		switch {
		case i == 0:
			role = "primary"
		case view.Topology.IsReplica(c.Node):
			role = "replica"
		case !view.Topology.IsPrimary(c.Node):
			role = "of an earlier ring"
		}
		v.Copies = append(v.Copies, copyView{c.Node, sink.Show(c.Key), role})
	}
	return v
}

// nodeStates are the nodes with which something is: off the live path, or owing.
func nodeStates(f *app.Fleet) map[string]nodeView {
	states := map[string]nodeView{}
	for _, o := range f.Owing {
		if o.Owes == "node" {
			states[o.Name] = nodeView{State: Late, Why: fmt.Sprintf("owes %d records since %s", o.Records, clock(o.Since))}
		}
	}
	for _, p := range f.Processes {
		for _, off := range p.Off {
			states[off.Node] = nodeView{State: Stands, Why: "off since " + clock(off.Since) + ": " + off.Why}
		}
	}
	return states
}

// fileView is a mapping file.
type fileView struct {
	Name, Team, Contact string
	Pools               []string
	Mappings, Templates int
	Failing             []string // processes in which its text in the folder is not in force
}

func (p *Page) files(f *app.Fleet) (out []fileView) {
	if p.s.Mappings == nil || p.s.Mappings() == nil {
		return nil
	}
	for _, file := range p.s.Mappings().Files() {
		name := filepath.Base(file.Name)
		v := fileView{Name: name, Team: file.Team, Contact: file.Contact, Pools: file.Pools, Mappings: len(file.Mappings)}
		for _, m := range file.Mappings {
			v.Templates += len(m.Templates)
		}
		for _, pr := range f.Processes {
			if slices.ContainsFunc(pr.Mappings.Failing, func(s string) bool { return filepath.Base(s) == name }) {
				v.Failing = append(v.Failing, pr.Role+" "+pr.ID)
			}
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b fileView) int { return cmp.Or(cmp.Compare(a.Team, b.Team), cmp.Compare(a.Name, b.Name)) })
	return out
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

var funcs = template.FuncMap{
	"clock":   clock,
	"seconds": seconds,
	"plural":  plural,
	"ago": func(t, now time.Time) string {
		if t.IsZero() {
			return ""
		}
		return now.Sub(t).Round(time.Second).String() + " ago"
	},
	"percent": func(w app.Work) int {
		share, _ := w.Share()
		return int(100 * share)
	},
	"inc": func(n int) int { return n + 1 },
}
