package memcache

import (
	"strings"
	"testing"

	"invalidator/sink/memcachetest"
)

func TestWhichServersMayBeHeldBack(t *testing.T) {
	for version, want := range map[Version]struct{ free, holds bool }{
		"1.6.18": {holds: true}, "1.6.9": {holds: true}, "1.5.22": {holds: true}, "1.6.18_3_g12": {holds: true},
		"1.6.19": {free: true}, "1.6.38": {free: true}, "1.7.0": {free: true}, "2.0.0": {free: true}, "1.6.19_3_g12": {free: true},
		"": {}, "nutcracker": {}, "1.6": {}, // not known: it is not held back, and nobody is warned of it
	} {
		if version.writesFreely() != want.free || version.HoldsClients() != want.holds {
			t.Errorf("%s: it may be held back: %v, it holds clients: %v", version, version.writesFreely(), version.HoldsClients())
		}
	}
}

func TestVersion(t *testing.T) {
	node := memcachetest.Start(t)
	c := asker(Options{})
	if v, err := c.Version(t.Context(), node.Addr()); err != nil || v != memcachetest.Version {
		t.Errorf("%q, %v", v, err)
	}
	for want, r := range map[string]memcachetest.Reply{
		"ERROR":                    {Text: "ERROR\r\n", Then: memcachetest.Skip},
		"asking node":              {Then: memcachetest.Hangup},
		"SERVER_ERROR out of luck": {Text: "SERVER_ERROR out of luck\r\n", Then: memcachetest.Skip},
	} {
		other := answering(t, "version", r)
		if v, err := c.Version(t.Context(), other.Addr()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), other.Addr()) {
			t.Errorf("%q, %v", v, err)
		}
	}
	gone := memcachetest.Start(t)
	gone.Close()
	if v, err := c.Version(t.Context(), gone.Addr()); err == nil || !strings.Contains(err.Error(), "connecting") {
		t.Errorf("%q, %v", v, err)
	}
}
