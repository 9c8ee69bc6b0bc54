package memcachetest

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
)

// crawler is the LRU crawler, as far as it dumps: one client at a time.
type crawler struct {
	lock    sync.Mutex // held by a dump, also while its reader pauses; let go for a moment after each crawlsPerSleep items
	running atomic.Bool
	items   [itemLocks]sync.Mutex // each held while an item of its part of the hash table is written to the dump's client
}

const (
	crawlsPerSleep = 1000
	itemLocks      = 4096 // as with four threads
)

var itemSeed = maphash.MakeSeed()

// itemLock is that of the key's part.
func (c *crawler) itemLock(key string) *sync.Mutex {
	return &c.items[maphash.String(itemSeed, key)%itemLocks]
}

// workers is how many threads share the connections out. A dump that waits for the crawler's lock hangs its thread, with every connection
// on it.
const workers = 4

// touch returns when nobody holds the key's part of the hash table. Its thread hangs until then.
func (ses *session) touch(key string) {
	ses.worker.Lock()
	defer ses.worker.Unlock()
	lock := ses.server.crawler.itemLock(key)
	lock.Lock()
	defer lock.Unlock()
}

// await returns when the connection's thread has a hand free.
func (ses *session) await() {
	ses.worker.Lock()
	defer ses.worker.Unlock()
}

// lruCrawler is lru_crawler metadump <class|all|hash>: whatever is asked for, the whole is shown.
func lruCrawler(ses *session, words []string) error {
	s := ses.server
	if len(words) != 2 || words[0] != "metadump" {
		return ses.answer("ERROR")
	}
	class, err := strconv.Atoi(words[1])
	switch {
	case !s.settings.crawler:
		return ses.answer("CLIENT_ERROR lru crawler disabled")
	case !s.settings.dumps:
		return ses.answer("ERROR metadump not allowed")
	case words[1] == "hash", words[1] == "all", err == nil && class >= 1 && class < 64:
	default:
		return ses.answer("BADCLASS invalid class id")
	}
	if !ses.startCrawler() {
		return ses.answer("BUSY currently processing crawler request")
	}
	defer func() {
		s.crawler.running.Store(false)
		s.crawler.lock.Unlock()
	}()
	return ses.dump()
}

// startCrawler takes the crawler's lock, and lets it go where the crawler is at work already.
func (ses *session) startCrawler() bool {
	crawler := &ses.server.crawler
	ses.worker.Lock()
	defer ses.worker.Unlock()
	crawler.lock.Lock()
	if crawler.running.Swap(true) {
		crawler.lock.Unlock()
		return false
	}
	return true
}

// dump shows every item that is there from its beginning to its end. An intercept sees each line as it sees commands.
func (ses *session) dump() error {
	for i, key := range ses.store.keys() {
		if i%crawlsPerSleep == crawlsPerSleep-1 {
			ses.server.crawler.lock.Unlock()
			ses.server.crawler.lock.Lock()
		}
		if err := ses.dumpItem(key); err != nil {
			return err
		}
	}
	return ses.show("END", "\r\n")
}

func (ses *session) dumpItem(key string) error {
	lock := ses.server.crawler.itemLock(key)
	lock.Lock()
	defer lock.Unlock()
	it, ok := ses.store.peek(key)
	if !ok {
		return nil
	}
	return ses.show(dumpLine(key, &it), "\n")
}

// show writes a line of a dump, unless an intercept does something else.
func (ses *session) show(line, end string) error {
	serve, err := ses.meet(line)
	if serve {
		_, err = ses.out.WriteString(line + end)
	}
	return err
}

// dumpLine is an item as a dump shows it. Its class is not its size's.
func dumpLine(key string, it *item) string {
	expires := int64(-1)
	if !it.expires.IsZero() {
		expires = it.expires.Unix()
	}
	return fmt.Sprintf("key=%s exp=%d la=%d cas=%d fetch=%s cls=1 size=%d", urlEncode(key), expires, it.touched.Unix(), it.cas, yes(it.fetched), itemSize+len(key)+len(it.value))
}

// itemSize is what an item has beside its key and value, in bytes: a header, a CAS value, and three that end these.
const itemSize = 59

// urlEncode writes a key as a dump does: letters, digits, - . _ and ~ stand for themselves.
func urlEncode(key string) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, 3*len(key))
	for _, b := range []byte(key) {
		switch {
		case b >= '0' && b <= '9', b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b == '-', b == '.', b == '_', b == '~':
			out = append(out, b)
		default:
			out = append(out, '%', hex[b>>4], hex[b&0xf])
		}
	}
	return string(out)
}
