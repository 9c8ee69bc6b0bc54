package demo

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"invalidator/sink"
)

// fleet is the memcached nodes as their readers see them, by a client that shares no line with ours.
type fleet []*node

type node struct {
	name   string // m1 … m4, as the story calls it
	addr   string
	zone   string
	client *memcache.Client
}

const (
	nodeTimeout = 2 * time.Second
	getAtOnce   = 200 // keys a get; a key has up to 60 bytes, and memcached takes a line of 64 KiB
	fillTTL     = 600 // seconds: what is left behind by a demo that was killed is gone after it
)

func newNode(name, addr, zone string) *node {
	c := memcache.New(addr)
	c.Timeout = nodeTimeout
	return &node{name, addr, zone, c}
}

func (f fleet) at(addr string) *node {
	for _, n := range f {
		if n.addr == addr {
			return n
		}
	}
	panic("no node at " + addr) // the demo's own ring names no other
}

// ping looks whether every node answers.
func (f fleet) ping() error {
	for _, n := range f {
		if err := n.client.Ping(); err != nil {
			return fmt.Errorf("memcached %s at %s: %w%s", n.name, n.addr, err, devUp)
		}
	}
	return nil
}

func (f fleet) set(c sink.Copy, value string) error {
	n := f.at(c.Node)
	if err := n.client.Set(&memcache.Item{Key: c.Key, Value: []byte(value), Expiration: fillTTL}); err != nil {
		return fmt.Errorf("memcached %s: setting %s: %w", n.name, c.Key, err)
	}
	return nil
}

// get returns what a node holds of keys.
func (n *node) get(keys []string) (map[string]string, error) {
	out := make(map[string]string)
	for chunk := range slices.Chunk(keys, getAtOnce) {
		items, err := n.client.GetMulti(chunk)
		if err != nil {
			return nil, fmt.Errorf("memcached %s: getting %d keys: %w", n.name, len(chunk), err)
		}
		for key, item := range items {
			out[key] = string(item.Value)
		}
	}
	return out, nil
}

// look returns those of the copies that are there.
func (f fleet) look(copies []sink.Copy) (map[sink.Copy]string, error) {
	byNode := make(map[*node][]string)
	for _, c := range copies {
		n := f.at(c.Node)
		byNode[n] = append(byNode[n], c.Key)
	}
	out := make(map[sink.Copy]string)
	for n, keys := range byNode {
		held, err := n.get(keys)
		if err != nil {
			return nil, err
		}
		for key, value := range held {
			out[sink.Copy{Node: n.addr, Key: key}] = value
		}
	}
	return out, nil
}

// forget deletes keys on every node.
func (f fleet) forget(keys []string) error {
	for _, n := range f {
		held, err := n.get(keys)
		if err != nil {
			return err
		}
		for key := range held {
			if err := n.client.Delete(key); err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
				return fmt.Errorf("memcached %s: deleting %s: %w", n.name, key, err)
			}
		}
	}
	return nil
}

func (f fleet) close() {
	for _, n := range f {
		n.client.Close()
	}
}
