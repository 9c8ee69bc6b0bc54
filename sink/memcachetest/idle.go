package memcachetest

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"time"
)

// processStart is how long a program may take to listen, and a memcached to idle.
const processStart = 5 * time.Second

// AwaitIdle returns when the LRU crawler of a memcached idles, so that a dump is not refused. One that was just started looks through its
// items once, of which it has none.
func AwaitIdle(tb TB, addr string) {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatalf("connecting: %v", err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for deadline := time.Now().Add(processStart); ; {
		fmt.Fprint(conn, "stats\r\n")
		began, idles := true, true
		for line := ""; line != "END\r\n"; {
			if line, err = in.ReadString('\n'); err != nil {
				tb.Fatalf("asking for stats: %v", err)
			}
			began = began && !strings.HasPrefix(line, "STAT lru_crawler_starts 0\r")
			idles = idles && !strings.HasPrefix(line, "STAT lru_crawler_running 1\r")
		}
		if began && idles {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("the LRU crawler of %s does not idle", addr)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
