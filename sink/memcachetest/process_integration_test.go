//go:build integration

package memcachetest

import (
	"net"
	"testing"
)

func TestConformanceOfMemcached(t *testing.T) {
	p := StartProcess(t)
	conformance(t, func(t *testing.T) net.Conn { return dial(t, p.Addr) })
}
