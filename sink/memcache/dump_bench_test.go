package memcache

import (
	"fmt"
	"net"
	"testing"

	"invalidator/sink/memcachetest"
)

func BenchmarkParseDumpLine(b *testing.B) {
	line, buf := []byte("key=user%3A00042%3Av3 exp=1764500060 la=1764500000 cas=17123456 fetch=no cls=1 size=63"), make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := parseDumpLine(buf[:copy(buf, line)]); !ok {
			b.Fatal("it is none")
		}
	}
	b.SetBytes(int64(len(line)) + 1)
}

// BenchmarkDump is on the in-process server, BenchmarkMemcachedDump (tag integration) on a real one.
func BenchmarkDump(b *testing.B) {
	node := memcachetest.Start(b)
	for i := range benchDump {
		node.Set(fmt.Sprintf("user:%08d:v3", i), "x")
	}
	benchmarkDump(b, node.Addr(), benchDump)
}

// benchDump is how many keys the in-process server has.
const benchDump = 100_000

// benchmarkDump compares a dump, whose keys are taken apart and told, with reading and throwing away what the server sends. An operation is a whole
// dump.
func benchmarkDump(b *testing.B, addr string, keys int) {
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := fmt.Fprint(conn, metadump+"\r\n"); err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, readSize)
			for n := 0; ; {
				more, err := conn.Read(buf[n:])
				if err != nil {
					b.Fatal(err)
				}
				if n += more; n >= 5 && string(buf[n-5:n]) == "END\r\n" {
					break
				}
				n = copy(buf, buf[max(0, n-5):n]) // END may come in two parts
			}
			conn.Close()
		}
		keysPerSecond(b, keys)
	})
	b.Run("Dump", func(b *testing.B) {
		c := asker(Options{})
		b.ReportAllocs()
		for b.Loop() {
			seen := 0
			if err := c.Dump(b.Context(), addr, func([]byte, uint64) { seen++ }); err != nil || seen != keys {
				b.Fatalf("%d keys, %v", seen, err)
			}
		}
		keysPerSecond(b, keys)
	})
}

func keysPerSecond(b *testing.B, keys int) {
	b.ReportMetric(float64(b.N)*float64(keys)/b.Elapsed().Seconds(), "keys/s")
}
