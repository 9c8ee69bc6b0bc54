//go:build integration

package memcache

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// stopWithin names the node that a process of this test's is to dump, as a worker that stands still in the middle of it.
const stopWithin = "TEST_STOP_WITHIN_DUMP_OF"

func init() {
	if addr := os.Getenv(stopWithin); addr != "" {
		keys := 0
		err := asker(Options{}).Dump(context.Background(), addr, func([]byte, uint64) {
			if keys++; keys == 1000 {
				fmt.Println("within")
				syscall.Kill(os.Getpid(), syscall.SIGSTOP) //nolint:errcheck // it is our own
			}
		})
		fmt.Println(err)
		os.Exit(1) // it was not killed
	}
}

// A worker whose whole process stands still within a dump reads no more, and nothing can be done about it there: a memcached of which check warns has its clients wait until
// the process is gone, and no longer; another one does not.
func TestMemcachedWhoseDumpIsOfAStoppedProcess(t *testing.T) {
	addr := idle(t, "-m", "512", "-t", "4")
	fillMany(t, addr, feed, 300_000) // 50 MB of a dump: more than any socket holds
	c := asker(Options{})
	version, err := c.Version(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	settled(t, c, addr)
	cs := clientsOf(t, addr)
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), stopWithin+"="+addr)
	out, err := worker.StdoutPipe()
	if err == nil {
		err = worker.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	gone := func() {
		worker.Process.Kill() //nolint:errcheck // it may be gone
		worker.Wait()         //nolint:errcheck // it was killed
	}
	defer gone()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "within\n" {
		t.Fatalf("it does not dump: %q, %v", line, err)
	}
	if version.HoldsClients() {
		eventually(t, "a client waits", func() bool { return cs.waiting() > mayWait })
		gone()
	}
	cs.awaitAnswers(t)
	worst, asked := cs.end()
	t.Logf("memcached %s: %d questions of clients, the longest took %s", version, asked, worst)
}
