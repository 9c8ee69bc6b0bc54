package sink

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// clientRing is a ring of testdata/clients/owners.json, which the clients themselves made: generate.py there.
type clientRing struct {
	Kind    string `json:"kind"`
	Hash    string `json:"hash"`
	HashTag string `json:"hash_tag"`
	Servers []struct {
		Server string `json:"server"`
		Name   string `json:"name"`
		Weight int    `json:"weight"`
	} `json:"servers"`
	Owners string `json:"owners"` // a digit for each of clientKeys: the server's index
}

func (c clientRing) String() string {
	weighted := ""
	for _, s := range c.Servers {
		if s.Weight > 1 {
			weighted = " with weights"
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s%s of %d%s", c.Kind, c.Hash, c.HashTag, len(c.Servers), weighted))
}

func (c clientRing) record() *Record {
	r := &Record{Epoch: 1, Kind: c.Kind, Hash: c.Hash, HashTag: c.HashTag}
	for i, s := range c.Servers {
		shard := Shard{ID: fmt.Sprint(i), Server: s.Server, Name: s.Name, Weight: max(1, s.Weight), Primary: Node{Addr: fmt.Sprintf("10.0.0.%d:11311", i)}}
		if c.Kind == KindModulo {
			shard.Server = ""
		}
		r.Shards = append(r.Shards, shard)
	}
	return r
}

func clientRings(t *testing.T) []clientRing {
	t.Helper()
	data, err := os.ReadFile("testdata/clients/owners.json")
	if err != nil {
		t.Fatal(err)
	}
	var rings []clientRing
	if err := json.Unmarshal(data, &rings); err != nil {
		t.Fatal(err)
	}
	return rings
}

func clientKeys() []string {
	forms := []string{"user:%d:profile", "feed:{%d}:v2", "naïve:日本語:%d", "o%d", "{}a{b}c:%d"}
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf(forms[i%len(forms)], i/len(forms))
	}
	return keys
}

// H11: 10,000 keys have the owner that each client gives them, on rings of 3 and 10 servers.
func TestRingsEqualTheClients(t *testing.T) {
	rings := clientRings(t)
	met := map[string]int{}
	for _, c := range rings {
		met[c.Kind]++
		t.Run(c.String(), func(t *testing.T) {
			top, err := NewTopology(c.record())
			if err != nil {
				t.Fatal(err)
			}
			wrong := 0
			for i, key := range clientKeys() {
				want := fmt.Sprintf("10.0.0.%c:11311", c.Owners[i])
				_, shard := top.Locate(key)
				got := top.AppendCopies(nil, key, 0)
				if shard != string(c.Owners[i]) || len(got) != 1 || got[0] != (Copy{want, key}) {
					if wrong++; wrong < 5 {
						t.Errorf("%q: got %v in shard %s, want %s", key, got, shard, want)
					}
				}
			}
			if wrong > 0 {
				t.Errorf("%d of %d keys are elsewhere", wrong, len(c.Owners))
			}
		})
	}
	if met[KindKetama] != 4 || met[KindKetamaWeighted] != 4 || met[KindModulo] != 2 || met[KindTwemproxy] < 12 {
		t.Errorf("got %v", met)
	}
}
