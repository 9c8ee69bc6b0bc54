//go:build integration

package registry

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A key changes only where it still is as its writer saw it: what a worker had begun before it was paused changes nothing that another has
// written since, and removes nothing.
func TestOwedKeysAreFenced(t *testing.T) {
	t.Parallel()
	e := sharedEtcd(t)
	prefix := e.ring + "/owed/"
	ctx := t.Context()
	paused := NewOwedKeys(EtcdConfig{Endpoints: []string{e.address}}, prefix)
	defer paused.Close()
	other := NewOwedKeys(EtcdConfig{Endpoints: []string{e.address}}, prefix)
	defer other.Close()
	const node = "[fe80::1%25eth0]:11211"

	first, err := paused.Put(ctx, node, []byte("a"), 0)
	if err != nil || first == 0 {
		t.Fatalf("the first key: revision %d, %v", first, err)
	}
	if again, err := other.Put(ctx, node, []byte("b"), 0); err != nil || again != 0 {
		t.Errorf("a key that is there was written as a new one: %d, %v", again, err)
	}
	second, err := other.Put(ctx, node, []byte("b"), first)
	if err != nil || second <= first {
		t.Fatalf("a later key: revision %d after %d, %v", second, first, err)
	}
	if done, err := paused.Remove(ctx, node, first); err != nil || done {
		t.Errorf("what another has written since was removed: %v, %v", done, err)
	}
	if late, err := paused.Put(ctx, node, []byte("a"), first); err != nil || late != 0 {
		t.Errorf("what another has written since was replaced: %d, %v", late, err)
	}

	e.put(prefix+"half%", "no node has this name")
	e.put(prefix+"a:1", "nor is this how one is written")
	all, err := paused.List(ctx)
	if got := all[node]; err != nil || len(all) != 1 || string(got.Value) != "b" || got.Revision != second {
		t.Errorf("listed %v, %v", all, err)
	}
	// As a client sees it.
	key := prefix + "%5Bfe80%3A%3A1%2525eth0%5D%3A11211"
	if resp, err := e.client.Get(context.Background(), key); err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease != int64(clientv3.NoLease) {
		t.Errorf("the key %s: %v, %v", key, resp, err)
	}
	if done, err := other.Remove(ctx, node, second); err != nil || !done {
		t.Errorf("removing: %v, %v", done, err)
	}
	if done, err := other.Remove(ctx, node, second); err != nil || done {
		t.Errorf("removed twice: %v, %v", done, err)
	}
}
