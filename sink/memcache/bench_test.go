package memcache

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// BenchmarkServer runs on the in-process server, BenchmarkMemcached (tag integration) on a real one.
func BenchmarkServer(b *testing.B) { benchmarkNode(b, memcachetest.Start(b).Addr()) }

const benchKeys = 1 << 16

// benchmarkNode compares the client with the most that one socket carries (bytes made beforehand, batches of the same
// size) and with gomemcache. An operation is one delete of a key that is not there.
func benchmarkNode(b *testing.B, addr string) {
	keys := make([]string, benchKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%08d", i)
	}
	b.Run("raw", func(b *testing.B) { benchmarkRaw(b, addr, keys) })
	for _, p := range []Protocol{Meta, Classic} {
		for _, conns := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/conns=%d", p, conns), func(b *testing.B) {
				benchmarkClient(b, addr, keys, Options{Protocol: p, ConnsPerNode: conns})
			})
		}
	}
	b.Run("gomemcache", func(b *testing.B) {
		client := memcache.New(addr)
		defer client.Close()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := client.Delete(keys[i%benchKeys]); err != memcache.ErrCacheMiss {
				b.Fatal(err)
			}
		}
		perSecond(b)
	})
}

func benchmarkRaw(b *testing.B, addr string, keys []string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	var batches [][]byte
	for i := 0; i < benchKeys; i += batchKeys {
		batch := make([]entry, batchKeys)
		for j := range batch {
			batch[j].key = keys[i+j]
		}
		batches = append(batches, appendCommands(nil, batch, false))
	}
	in := bufio.NewReader(conn)
	b.ResetTimer()
	for i := 0; i < b.N; i += batchKeys {
		if _, err := conn.Write(batches[i/batchKeys%len(batches)]); err != nil {
			b.Fatal(err)
		}
		for line := []byte(nil); !bytes.Equal(line, []byte("MN\r\n")); {
			if line, err = in.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
	}
	perSecond(b)
}

// countdown is a Waiter.
type countdown struct{ sync.WaitGroup }

func (c *countdown) Acked(_ sink.Copy, err error) {
	if err != nil {
		panic(err)
	}
	c.Done()
}

// benchmarkClient deletes as fast as there is room: Live, which never waits, would take the node off.
func benchmarkClient(b *testing.B, addr string, keys []string, opts Options) {
	c, _ := start(b, opts)
	var left countdown
	left.Add(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := c.Delete(b.Context(), sink.Backlog, sink.Copy{Node: addr, Key: keys[i%benchKeys]}, &left); err != nil {
			b.Fatal(err)
		}
	}
	left.Wait()
	perSecond(b)
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deletes/s")
}
