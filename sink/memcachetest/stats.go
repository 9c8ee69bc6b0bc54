package memcachetest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// counters go up from the server's start.
type counters struct {
	cmdGet, getHits, getMisses atomic.Uint64
	cmdSet                     atomic.Uint64
}

// asked counts a key that was asked for. What a reader leases, so that it is there from now on, is a hit.
func (c *counters) asked(hit bool) {
	c.cmdGet.Add(1)
	if hit {
		c.getHits.Add(1)
	} else {
		c.getMisses.Add(1)
	}
}

// Another process each: a server that is started where one was has another number.
var pids atomic.Int64

// hashPower is that of a memcached's hash table: it has 2^16 buckets, and doubles them when it has half as many items more than buckets.
func hashPower(items int) (power int) {
	for power = 16; items > 3<<power/2; power++ {
	}
	return power
}

// stats is the figures that the project asks a node for, and with `settings` what it was told at its start.
func stats(ses *session, words []string) error {
	s := ses.server
	switch strings.Join(words, " ") {
	case "":
		now := time.Now()
		ses.stat("pid", s.pid)
		ses.stat("uptime", now.Unix()-s.started.Unix())
		ses.stat("time", now.Unix())
		ses.stat("version", Version)
		ses.stat("cmd_get", s.counters.cmdGet.Load())
		ses.stat("cmd_set", s.counters.cmdSet.Load())
		ses.stat("get_hits", s.counters.getHits.Load())
		ses.stat("get_misses", s.counters.getMisses.Load())
		ses.stat("hash_power_level", hashPower(s.store.len()))
		ses.stat("hash_is_expanding", 0)
		if s.settings.crawler {
			ses.stat("lru_crawler_running", number(s.crawler.running.Load()))
		}
		ses.stat("curr_items", s.store.len())
	case "settings":
		ses.stat("cas_enabled", yes(s.settings.cas))
		ses.stat("lru_crawler", yes(s.settings.crawler))
		ses.stat("lru_crawler_sleep", 100)
		ses.stat("dump_enabled", yes(s.settings.dumps))
	}
	return ses.answer("END")
}

func (ses *session) stat(name string, value any) { fmt.Fprintf(ses.out, "STAT %s %v\r\n", name, value) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
