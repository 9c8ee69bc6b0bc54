package gap

import (
	"testing"
	"time"

	"invalidator/cdc"
)

// Of two who decide in the same moment, neither seeing the other's decision, the first one's stands, for both and for who waits for it.
func TestTwoWhoDecideAtOnce(t *testing.T) {
	for name, crash := range map[string]bool{"both": false, "the second dies before it looks": true} {
		t.Run(name, func(t *testing.T) {
			c, b := open(t)
			g := Gap{ID: "shop/1", Source: "shop", Stops: true, From: cdc.Position{Pos: 1}, Why: "purged"}
			ann, err := b.Record(t.Context(), g, false)
			must(t, err)
			bob := *ann
			must(t, b.Accept(t.Context(), ann, "ann", true))
			if crash {
				must(t, b.put(t.Context(), acceptedPrefix, bob.ID, Acceptance{V: version, ID: bob.ID, By: "bob", At: time.Now(), Flush: false}))
			} else {
				must(t, b.Accept(t.Context(), &bob, "bob", false))
				if bob.Acceptance.By != "ann" || !bob.Acceptance.Flush {
					t.Errorf("bob thinks that this stands: %+v", bob.Acceptance)
				}
				// What a compacted topic keeps.
				if a := b.list(t)[0].Acceptance; a.By != "ann" || !a.Flush {
					t.Errorf("the topic ends with %+v", a)
				}
				if n := len(c.Records(t, c.Names.Status)); n != 2 { // the gap, and one decision
					t.Errorf("%d records on the status topic", n)
				}
			}
			a, ok, err := b.Await(t.Context(), g.ID, time.Second, time.Minute)
			if err != nil || !ok || a.By != "ann" || !a.Flush {
				t.Errorf("who waits sees %+v %t %v", a, ok, err)
			}
		})
	}
}
