package memcache

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// resolveEvery is how often a node's name is looked up while it is on. Each new connection looks it up anyway.
const resolveEvery = 30 * time.Second

// hostName is the name that addr has to be resolved by; empty where it is an IP address.
func hostName(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return host
}

// resolve looks the node's name up until ctx ends, so that a connection to an address that the name no longer has is closed. While
// the look-up fails what was found last counts.
func (n *node) resolve(ctx context.Context, name string) {
	for sleep(ctx, resolveEvery) {
		lookup, cancel := context.WithTimeout(ctx, n.client.opts.DialTimeout)
		found, err := n.client.lookup(lookup, name)
		cancel()
		if err == nil && len(found) > 0 {
			n.found(found)
		}
	}
}

func (n *node) found(addrs []netip.Addr) {
	for i := range addrs {
		addrs[i] = plainIP(addrs[i])
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.addrs = addrs
}

// moved says whether the node's name no longer has the address.
func (n *node) moved(from netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return from.IsValid() && len(n.mu.addrs) > 0 && !slices.Contains(n.mu.addrs, from)
}

// connected forgets what was found before a new connection looked the name up itself.
func (n *node) connected(l link) (changed bool) {
	spoken := Meta
	if l.classic() {
		spoken = Classic
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if from := l.remote(); from.IsValid() && len(n.mu.addrs) > 0 && !slices.Contains(n.mu.addrs, from) {
		n.mu.addrs = nil
	}
	changed = n.mu.protocol != spoken && (n.mu.protocol != "" || spoken != n.client.opts.Protocol)
	n.mu.protocol = spoken
	return changed
}
