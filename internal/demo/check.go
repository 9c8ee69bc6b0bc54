package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"invalidator/sink"
)

// offender is a copy that is not as it should be.
type offender struct {
	sink.Copy
	held, want string // held is "" where nothing is
}

// verdict is what a look at copies showed.
type verdict struct {
	equal, absent int
	stale         []offender
}

// judge compares what nodes hold with what rows render now. want is by the key on the wire; what is not in it has no row.
// An absent copy is never wrong: a reader fills it from the row.
func judge(copies []sink.Copy, held map[sink.Copy]string, want map[string]string) verdict {
	var v verdict
	for _, c := range copies {
		value, there := held[c]
		wanted, ok := want[c.Key]
		if !ok {
			wanted = notFound
		}
		switch {
		case !there:
			v.absent++
		case value == wanted:
			v.equal++
		default:
			v.stale = append(v.stale, offender{c, value, wanted})
		}
	}
	return v
}

// lost returns the copies that were filled and are not there, or hold something else: whoever deletes what is not there
// proves nothing.
func lost(filled, held map[sink.Copy]string) []offender {
	var out []offender
	for c, want := range filled {
		if value, there := held[c]; !there || value != want {
			out = append(out, offender{c, value, want})
		}
	}
	slices.SortFunc(out, func(a, b offender) int { return strings.Compare(a.Key+a.Node, b.Key+b.Node) })
	return out
}

// everywhere are the places where any key ever used could be: every node, whoever owns it.
func (d *demo) everywhere() []sink.Copy {
	var out []sink.Copy
	for _, key := range d.keys() {
		for _, wire := range d.ring.wires(key) {
			for _, n := range d.stage.nodes {
				out = append(out, sink.Copy{Node: n.addr, Key: wire})
			}
		}
	}
	return out
}

// rendered is what all rows render now, by the key on the wire.
func (d *demo) rendered(ctx context.Context) (map[string]string, error) {
	want := map[string]string{}
	for i, db := range d.stage.databases {
		for _, t := range tables {
			rows, err := db.rows(ctx, t, d.base(i), d.base(i)+perDatabase-1)
			if err != nil {
				return nil, err
			}
			for key, value := range t.render(rows) {
				for _, wire := range d.ring.wires(key) {
					want[wire] = value
				}
			}
		}
	}
	return want, nil
}

// check is the end: every copy of every key ever used, on every node, against the rows.
func (d *demo) check(ctx context.Context) error {
	d.out.Title("At the end: every copy of every key on every node, against the rows")
	want, err := d.rendered(ctx)
	if err != nil {
		return err
	}
	places := d.everywhere()
	held, err := d.stage.nodes.look(places)
	if err != nil {
		return err
	}
	v := judge(places, held, want)
	d.stale = append(d.stale, v.stale...)
	d.out.Line("  keys                    %6d", len(d.used))
	d.out.Line("  copies looked at        %6d   on %d nodes, owners or not", len(places), len(d.stage.nodes))
	d.out.Line("  present and equal       %6d   %d of them of rows that nobody changed", v.equal, d.stayed(held))
	d.out.Line("  absent                  %6d", v.absent)
	d.out.Line("  stale                   %6s", d.count(len(v.stale)))
	d.out.Line("  missing at the start    %6s   of %d copies that were to be there before a commit", d.count(len(d.missing)), d.shown)
	return d.result()
}

// count shows a number that should be 0.
func (d *demo) count(n int) string {
	text := fmt.Sprintf("%6d", n)
	if n == 0 {
		return d.out.Good(text)
	}
	return d.out.Bad(text)
}

// stayed counts the copies of rows that nobody changed and that are still there.
func (d *demo) stayed(held map[sink.Copy]string) int {
	n := 0
	for c := range d.quiet {
		if _, there := held[c]; there {
			n++
		}
	}
	return n
}

// maxOffenders bounds the offenders told by name.
const maxOffenders = 20

// result tells the offenders; its error is ErrFailed where there is one.
func (d *demo) result() error {
	if len(d.stale) == 0 && len(d.missing) == 0 {
		d.out.Line("\n%s no copy is stale, and none was missing at the start", d.out.Good("passed:"))
		return nil
	}
	d.out.Line("\n%s", d.out.Bad("FAILED"))
	d.offenders("stale", d.stale)
	d.offenders("missing at the start", d.missing)
	return ErrFailed
}

func (d *demo) offenders(what string, all []offender) {
	seen := map[sink.Copy]bool{}
	for _, o := range all {
		if seen[o.Copy] {
			continue // met in its step and at the end
		}
		seen[o.Copy] = true
		if len(seen) <= maxOffenders {
			held := o.held
			if held == "" {
				held = "nothing"
			}
			d.out.Line("  %s: %s on %s (%s)\n      holds   %s\n      instead of %s", what, o.Key, d.stage.nodes.at(o.Node).name, o.Node,
				cut(held, 90), cut(o.want, 86))
		}
	}
	if more := len(seen) - maxOffenders; more > 0 {
		d.out.Line("  and %d more", more)
	}
}
