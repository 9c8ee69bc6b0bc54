package memcachetest

import (
	"bytes"
	"io"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCloseDropsConnections(t *testing.T) {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, s.Addr())
	speaker := newSpeaker(conn, "k")
	speaker.follow(t, "> mn")
	speaker.follow(t, "< MN")
	s.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	s.Close() // a second time is nothing
}

func TestFlushAll(t *testing.T) {
	s := Start(t)
	s.Set("k", "v")
	speaker := newSpeaker(dial(t, s.Addr()), "k")
	speaker.follow(t, "> flush_all")
	speaker.follow(t, "< OK")
	if s.Len() != 0 {
		t.Error("an item is left")
	}
}

func TestAValueAboveTheLimitIsSwallowed(t *testing.T) {
	s := newSpeaker(dial(t, Start(t).Addr()), "k")
	s.follow(t, "> set k 0 0 1048577")
	s.follow(t, "> "+string(bytes.Repeat([]byte("x"), maxValue+1)))
	s.follow(t, "< "+tooLarge)
	s.follow(t, "> mn")
	s.follow(t, "< MN")
}

func TestIntercept(t *testing.T) {
	s := Start(t)
	s.Set("k", "v")
	s.Intercept(func(conn int, line string) Reply {
		switch {
		case conn == 1 && line == "md k":
			return Reply{Text: "SERVER_ERROR no\r\n", Then: Skip}
		case line == "md half":
			return Reply{Text: "N", Then: Hangup}
		}
		return Reply{}
	})
	first := newSpeaker(dial(t, s.Addr()), "k")
	first.follow(t, "> md k")
	first.follow(t, "< SERVER_ERROR no")
	second := newSpeaker(dial(t, s.Addr()), "k")
	second.follow(t, "> md k")
	second.follow(t, "< HD")
	second.follow(t, "> md half")
	if rest, err := io.ReadAll(second.in); string(rest) != "N" || err != nil {
		t.Errorf("after half a line: %q, %v", rest, err)
	}
}

// FuzzSession feeds the server any bytes: it answers or hangs up, and holds what it says it does.
func FuzzSession(f *testing.F) {
	for _, seed := range []string{
		"md a q\r\nmn\r\n", "mg a v c N30 Ox\r\nms a 2 C1 I T9 F1 MS\r\nxx\r\nmd a I T30 C2\r\n", "set a 1 2 3\r\nabc\r\nget a b\r\n",
		"cas a 0 0 1 1 noreply\r\nx\r\n", "delete a noreply\r\n", "ms a -1\r\n", "ms a\r\n", "mg a N\r\n", "\x00\r\n", " \r\n", "set k 0 0 9223372036854775807\r\n",
		"md \xff\r\n", "set a 0 0 1\r\nx\r\nlru_crawler metadump hash\r\nlru_crawler\r\nlru_crawler metadump 9\r\nstats\r\nstats settings\r\nstats x\r\n", "ms YSBi 1 b k\r\nx\r\nmg YSBi b k v\r\nmd YSBi b I T9 q\r\nmd YSB b\r\nmd ==== b k\r\n", "mg a \xc3\xa9\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		ses := newServer(settings{cas: true, dumps: true, crawler: true}).newSession(1, bytes.NewReader(in), io.Discard)
		for {
			command, err := ses.next()
			if err != nil || ses.run(command) != nil {
				break
			}
		}
		for key := range ses.store.items {
			if key == "" || len(key) > maxKey {
				t.Errorf("it took the key %q", key)
			}
		}
	})
}
