package owed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
)

var at = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// debt is a node's debt in a state record; to -1 is open.
func debt(node string, from, to int64, since time.Time) string {
	end := "null"
	if to >= 0 {
		end = fmt.Sprint(to)
	}
	return fmt.Sprintf(`{"kind":"node","name":%q,"from":%d,"to":%s,"since":%q,"epoch":1,"hot_revision":1}`, node, from, end, since.Format(time.RFC3339Nano))
}

func record(offset int64, debts ...string) string {
	return fmt.Sprintf(`{"v":2,"offset":%d,"debts":[%s],"journal":[]}`, offset, strings.Join(debts, ","))
}

// key is a state's key of partition n of the topic t.
func key(n, generation int, writer string) string {
	return fmt.Sprintf("partition/g/t/%d/%d/%s", n, generation, writer)
}

// Which records count, and what they owe together.
func TestSum(t *testing.T) {
	minute := at.Add(-time.Minute)
	newer := `{"v":4}`
	for _, tc := range []struct {
		name   string
		writes [][2]string // key, value; an empty value removes
		want   string      // of node a:1: partitions, records, since, off; partition ends are 1000
		bad    bool
	}{
		{"nothing", nil, "", false},
		{"one", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, at))}}, "1 20 10:00:00 false", false},
		{"open", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, -1, at))}}, "1 990 10:00:00 true", false},
		{"two partitions, one of them open", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, at))}, {key(1, 9, "y"), record(50, debt("a:1", 900, -1, minute))}},
			"2 120 09:59:00 true", false},
		{"another owes", [][2]string{{key(0, 3, "x"), record(50, debt("b:1", 10, 30, at))}}, "", false},
		{"a mapping of its name owes", [][2]string{{key(0, 3, "x"), record(50, strings.Replace(debt("a:1", 10, 30, at), "node", "template", 1))}}, "", false},
		{"paid", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, at))}, {key(0, 3, "x"), record(60)}}, "", false},
		{"paid by the next owner", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, at))}, {key(0, 4, "y"), record(60)}}, "", false},
		{"a paused owner writes late", [][2]string{{key(0, 4, "y"), record(60, debt("a:1", 10, 30, at))}, {key(0, 3, "x"), record(50)}}, "1 20 10:00:00 false", false},
		{"generations are numbers", [][2]string{{key(0, 10, "y"), record(60)}, {key(0, 9, "x"), record(50, debt("a:1", 10, 30, at))}}, "", false},
		{"a static member restarted: the order is not known", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, at))}, {key(0, 3, "y"), record(60)}},
			"1 20 10:00:00 false", false},
		{"both owe", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, minute))}, {key(0, 3, "y"), record(60, debt("a:1", 20, -1, at))}}, "1 990 09:59:00 true", false},
		{"the first is removed", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, at))}, {key(0, 3, "y"), record(60)}, {key(0, 3, "x"), ""}}, "", false},
		{"all are removed", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, at))}, {key(0, 3, "x"), ""}}, "", false},
		{"as versions before wrote keys", [][2]string{{"partition/g/t/0/3", record(50, debt("a:1", 10, 30, at))}}, "1 20 10:00:00 false", false},
		{"a newer version", [][2]string{{key(0, 3, "x"), newer}}, "", true},
		{"a kind of debt that is not known", [][2]string{{key(0, 3, "x"), record(50, strings.Replace(debt("a:1", 10, 30, at), "node", "wish", 1))}}, "", true},
		{"no JSON", [][2]string{{key(0, 3, "x"), "x"}}, "", true},
		{"a newer version of another partition", [][2]string{{key(0, 3, "x"), record(50, debt("a:1", 10, 30, at))}, {key(1, 3, "x"), newer}}, "1 20 10:00:00 false", true},
		{"a newer version, before", [][2]string{{key(0, 3, "x"), newer}, {key(0, 4, "y"), record(60)}}, "", false},
		{"a newer version, mended", [][2]string{{key(0, 3, "x"), newer}, {key(0, 3, "x"), record(60)}}, "", false},
		{"no keys of states", [][2]string{{"partition/g/t/0", newer}, {"partition/g/t/zero/3/x", newer}, {"partition/g/t/0/three/x", newer}, {"partition/g/t/0/3/x/y", newer}, {"partition/g/%zz/0/3/x", newer}}, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewSum("g")
			for _, w := range tc.writes {
				if !Wanted("g")([]byte(w[0])) {
					t.Fatalf("%s is not wanted", w[0])
				}
				if w[1] == "" {
					s.Apply(w[0], nil)
				} else {
					s.Apply(w[0], []byte(w[1]))
				}
			}
			all, err := s.All()
			got := ""
			if of := all[Owner{pipeline.KindNode, "a:1"}]; len(of) > 0 {
				total := TotalOf(of, map[changelog.Partition]int64{{Topic: "t", Number: 0}: 1000, {Topic: "t", Number: 1}: 1000})
				got = fmt.Sprintf("%d %d %s %t", total.Partitions, total.Records, total.Since.Format(time.TimeOnly), total.Open)
			}
			if got != tc.want || (err != nil) != tc.bad {
				t.Errorf("owed is %q, want %q; %v", got, tc.want, err)
			}
		})
	}
}

// Only the group's own states are wanted: not those of a group whose name begins alike, nor what else is on the topic.
func TestWanted(t *testing.T) {
	var got []string
	for _, k := range []string{"partition/g/t/0/3/x", "partition/g.dry-run/t/0/3/x", "partition/gg/t/0/3/x", "journal/g/t/0/-/x/n", "partition/g", "seen/g/t/0"} {
		if Wanted("g")([]byte(k)) {
			got = append(got, k)
		}
	}
	if d := cmp.Diff([]string{"partition/g/t/0/3/x"}, got); d != "" {
		t.Error(d)
	}
}

// A rate is of what was paid since the node is back, of the last half minute.
func TestRate(t *testing.T) {
	to := int64(10_000)
	one := func(from int64, to *int64, since time.Time) map[changelog.Partition]pipeline.Debt {
		return map[changelog.Partition]pipeline.Debt{{Topic: "t"}: {Kind: "node", Name: "a:1", From: from, To: to, Since: since}}
	}
	var m meter
	look := func(second int, debts map[changelog.Partition]pipeline.Debt, off bool, want float64) {
		t.Helper()
		m.see(at.Add(time.Duration(second)*time.Second), debts, off)
		if got := m.rate(); got != want {
			t.Errorf("after %d s: %v records a second, want %v", second, got, want)
		}
	}
	look(0, one(0, nil, at), true, 0)
	look(100, one(0, nil, at), true, 0)
	look(101, one(0, &to, at), false, 0)
	look(102, one(500, &to, at), false, 250) // of the two seconds since it was off
	look(110, one(1000, &to, at), false, 100)
	look(130, one(4000, &to, at), false, 4000.0/30)
	look(140, one(4000, &to, at), false, 3000.0/30) // since second 110
	look(141, one(3000, &to, at), false, 3000.0/31) // it was lowered: what was paid stays so
	look(142, nil, false, (3000.0+7000)/32)         // and the last
	if len(m.samples) > 7 {
		t.Errorf("%d samples are kept", len(m.samples))
	}
	// Off again, with a debt of its own.
	look(143, one(0, nil, at.Add(time.Minute)), true, 0)
	look(144, one(0, &to, at.Add(time.Minute)), false, 0)
}
