package pipeline

import (
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

// handleFile maps a column that the table had once.
const handleFile = `version: 1
team: profiles
pools: [user, mail]
mappings:
  - {name: handles, table: shop.users, keys: ["user:by-handle:{handle}"]}
  - {name: user, table: shop.users, keys: ["user:{id}", "mail:{email}"]}
`

// mended is it with the column's name of today.
var mended = strings.Replace(handleFile, "{handle}", "{nick}", 1)

var nickColumns = cdc.NewColumns([]cdc.Column{{Name: "id", Type: "bigint", Key: true}, {Name: "email", Type: "text"}, {Name: "nick", Type: "text"}})

// sendNick sends an insert of a row with a nick and no handle.
func (r *rig) sendNick(offset int64, nick string) {
	text := func(s string) cdc.Value { return cdc.Value{Kind: cdc.Text, S: s} }
	r.send(offset, &cdc.RowChange{Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "users"}, Op: cdc.Insert,
		Columns: nickColumns, After: cdc.Row{{Kind: cdc.Integer, S: "1"}, text("a"), text(nick)}, CommitTime: time.Now()})
}

func stopping(t *testing.T, test func(t *testing.T, r *rig)) {
	deliver(t, func(t *testing.T, r *rig) {
		r.reload(t, handleFile)
		test(t, r)
	})
}

// DESIGN 4.5: a template whose column is gone stops alone: its mapping owes the log from there, once; all other keys are deleted as they come. Another
// text of its file pays it, from the log.
func TestStoppedTemplate(t *testing.T) {
	stopping(t, func(t *testing.T, r *rig) {
		r.sendNick(0, "n0")
		r.sendNick(1, "n1")
		r.wantDebts(t, "template profiles/handles 0-")
		if lane := r.nodes.laneOf("n1 user:1"); lane != "live" {
			t.Errorf("another mapping's key is in lane %q", lane)
		}
		r.pass(3 * settle)
		r.wantMark(t, 2)
		if n := strings.Count(r.log.String(), "does not fit its table"); n != 1 {
			t.Errorf("told %d times", n)
		}
		r.nodes.take()
		r.reload(t, mended)
		r.sendNick(2, "n2")
		r.pass(gather + 2*settle)
		got := r.nodes.take()
		for _, key := range []string{"n1 user:by-handle:n0", "n2 user:by-handle:n1", "n1 user:by-handle:n2"} {
			if !slices.Contains(got, key) {
				t.Errorf("no %s in %q", key, got)
			}
		}
		r.wantDebts(t)
	})
}

// A pass that cannot render it either opens the debt again, and waits for yet another text.
func TestStoppedTemplateThatIsNotMended(t *testing.T) {
	stopping(t, func(t *testing.T, r *rig) {
		r.sendNick(0, "n0")
		r.pass(3 * settle)
		r.reload(t, strings.Replace(handleFile, "{handle}", "{handel}", 1))
		r.pass(time.Minute)
		r.wantDebts(t, "template profiles/handles 0-")
		reads := len(r.past.ranges())
		r.pass(time.Hour)
		if n := len(r.past.ranges()); n != reads {
			t.Errorf("read the log %d times more, and nothing is another", n-reads)
		}
		r.reload(t, mended)
		r.pass(gather + 2*settle)
		r.wantDebts(t)
		if !slices.Contains(r.nodes.take(), "n1 user:by-handle:n0") {
			t.Error("it was not deleted")
		}
	})
}

// Records that come between a reload and its sight by the partition do not make the debt wait for a third text.
func TestStoppedTemplateAcrossTheReload(t *testing.T) {
	stopping(t, func(t *testing.T, r *rig) {
		r.sendNick(0, "n0")
		r.pass(3 * settle)
		r.reload(t, strings.Replace(handleFile, "{handle}", "{handel}", 1))
		for o := int64(1); o < 20; o++ {
			r.sendNick(o, "n")
		}
		r.pass(time.Minute)
		r.wantDebts(t, "template profiles/handles 0-")
		if s := r.state(t); s.Debts[0].Under != printOf(r.w.opts.Snapshots.Current().Mapper, "profiles/handles") {
			t.Error("it waits for another text than today's")
		}
	})
}

// A node's pass does not leave what can be rendered to a mapping that stopped: that may take days.
func TestStoppedMappingHoldsNoNodeUp(t *testing.T) {
	stopping(t, func(t *testing.T, r *rig) {
		r.reload(t, strings.Replace(handleFile, `keys: ["user:by-handle:{handle}"]`, `keys: ["user:by-handle:{handle}", "user:of:{email}"]`, 1))
		r.nodes.turn("n1", false)
		r.sendNick(0, "n0")
		r.pass(3 * settle)
		r.nodes.take()
		r.nodes.turn("n1", true)
		r.pass(gather + 2*settle)
		r.wantDebts(t, "template profiles/handles 0-")
		r.wantTimes(t, 2, "n1 user:of:a")
	})
}

// After a restart: the same file waits on, another one is read anew.
func TestStoppedTemplateSurvivesARestart(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"the same file": {handleFile, []string{"template profiles/handles 0-"}},
		"mended":        {mended, nil},
	} {
		t.Run(name, func(t *testing.T) {
			stopping(t, func(t *testing.T, r *rig) {
				r.sendNick(0, "n0")
				r.pass(3 * settle)
				k := r.w.Revoke([]changelog.Partition{users})[0]
				kept := k.Keep()
				next := newRigOf(t, c.file)
				next.past, next.w.opts.Past, next.w.opts.Archive = r.past, r.past, r.archive
				next.w.Assign(users, k.Offset, changelog.Restored{State: kept.State, Journal: kept.Journal})
				next.pass(gather + 2*settle)
				next.wantDebts(t, c.want...)
				if c.want == nil {
					next.wantTimes(t, 2, "n1 user:by-handle:n0", "n2 user:by-handle:n0")
				}
			})
		})
	}
}

// A row that has no such key stops nothing.
func TestRowWithoutAKeyStopsNothing(t *testing.T) {
	stopping(t, func(t *testing.T, r *rig) {
		none := cdc.NewColumns([]cdc.Column{{Name: "id", Key: true}, {Name: "email"}, {Name: "handle"}})
		row := cdc.Row{{Kind: cdc.Integer, S: "1"}, {Kind: cdc.Text, S: "a"}, {Kind: cdc.Null}}
		minimal := cdc.Row{{Kind: cdc.Integer, S: "1"}, {}, {}}
		for o, images := range [][2]cdc.Row{{nil, row}, {row, row}, {minimal, {{}, {Kind: cdc.Text, S: "b"}, {}}}} {
			op := cdc.Update
			if images[0] == nil {
				op = cdc.Insert
			}
			r.send(int64(o), &cdc.RowChange{Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "users"}, Op: op,
				Columns: none, KeyColumns: []string{"id"}, Before: images[0], After: images[1], CommitTime: time.Now()})
		}
		r.wantDebts(t)
		r.wantCount(t, 2, "skipped_total", "user", "absent")
	})
}
