package mysql

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

// What stays prepared is told after a while, and again after as long, not with every transaction.
func TestXARemindsOfLongOnes(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	x := newPrepareds()
	x.list = []*prepared{{xid: "X'61',X'',1", since: time.Now().Add(-longPrepared / 2)}}
	if x.remind(log); out.Len() > 0 {
		t.Errorf("told too early: %s", &out)
	}
	x.list[0].since = time.Now().Add(-longPrepared)
	x.remind(log)
	x.remind(log)
	if n := strings.Count(out.String(), "XA RECOVER"); n != 1 || !strings.Contains(out.String(), "age=10m") {
		t.Errorf("told %d times: %s", n, &out)
	}
	x.reminded = time.Now().Add(-longPrepared)
	if x.remind(log); strings.Count(out.String(), "XA RECOVER") != 2 {
		t.Errorf("not told again: %s", &out)
	}
}

// Kept rows take bounded memory: whose rows do not fit is read again, and gives room to others.
func TestXAKeepsLittle(t *testing.T) {
	x := newPrepareds()
	large, small := &prepared{}, &prepared{}
	change := func() *cdc.RowChange { return &cdc.RowChange{After: make(cdc.Row, 2)} }
	x.keep(small, change(), 100)
	for range 100 {
		x.keep(large, change(), keptBytes/50)
		if x.bytes > keptBytes {
			t.Fatalf("%d bytes are kept", x.bytes)
		}
	}
	if !large.again || len(large.kept) > 0 || small.again || len(small.kept) != 1 || x.bytes != small.bytes {
		t.Errorf("large: again %v, %d kept; small: again %v, %d kept; %d bytes", large.again, len(large.kept), small.again, len(small.kept), x.bytes)
	}
	if x.forget(small); x.bytes != 0 {
		t.Errorf("%d bytes are left", x.bytes)
	}
}
