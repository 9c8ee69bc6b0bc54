package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/config"
)

const (
	serverA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	serverB = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
)

func TestParsePlace(t *testing.T) {
	for text, want := range map[string]Place{
		"0/16B3748":                      {domain: "lsn", minor: 0x16B3748},
		"1A/0":                           {domain: "lsn", minor: 0x1A << 32},
		serverA + ":90":                  {domain: "uuid " + serverA, minor: 90},
		strings.ToUpper(serverA) + ":90": {domain: "uuid " + serverA, minor: 90},
		serverA + ":tag:90":              {domain: "uuid " + serverA, minor: 90},
		"0-1-90":                         {domain: "domain 0", minor: 90},
		"binlog.000003:1234":             {domain: "file binlog", major: 3, minor: 1234},
		"my-host.bin.000012:4":           {domain: "file my-host.bin", major: 12, minor: 4},
	} {
		want.text = text
		if got, ok := ParsePlace(text); !ok || got != want {
			t.Errorf("%s: %+v, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "yesterday", "0/", "0/16B37481234", "1-2", serverA, serverA + ":1-90", "binlog:12", "binlog.000003", "10:00:00", "0-1-99999999999999999999"} {
		if got, ok := ParsePlace(text); ok {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// A place in a database's log becomes the commit times of changes just before and just behind it, from the topics alone.
func TestAPlaceInTheTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(48 * time.Hour)
		r := newDeskRig(t)
		r.put(0, []byte("nonsense"))
		began := time.Now()
		var commits []time.Time
		for i := 1; i <= 40; i++ { // a transaction each 20 s, on both partitions by turns, committed a moment before
			time.Sleep(20 * time.Second)
			commit := time.Now().Add(-50 * time.Millisecond)
			commits = append(commits, commit)
			r.put(int32(i%2), []byte(fmt.Sprintf(`{"before":null,"after":{"id":%d},"source":{"connector":"mysql","name":"shop","db":"shop","table":"users","ts_ms":%d,"gtid":"%s:%d","file":"binlog.000003","pos":%d},"op":"c"}`,
				i, commit.UnixMilli(), serverA, 100+i, 1000*i)))
		}
		time.Sleep(time.Minute)
		for text, n := range map[string]int{serverA + ":117": 17, "binlog.000003:17000": 17, "binlog.000003:16001": 17, serverA + ":140": 40} {
			place, ok := ParsePlace(text)
			if !ok {
				t.Fatal(text)
			}
			before, behind, err := r.TimesAt(t.Context(), "", place)
			at, earlier := commits[n-1].Truncate(time.Millisecond).Add(placeMargin), commits[n-2].Truncate(time.Millisecond).Add(-placeMargin)
			if err != nil || !before.Equal(earlier) || !behind.Equal(at) {
				t.Errorf("%s: from %s to %s, want from %s to %s, %v", text, before, behind, earlier, at, err)
			}
		}
		first, _ := ParsePlace(serverA + ":50")
		if before, behind, err := r.TimesAt(t.Context(), "shop", first); err != nil || before.Unix() != 0 || behind.Before(began) {
			t.Errorf("before the first change of a log that is whole: from %s to %s, %v", before, behind, err)
		}
		refusedAs := func(source, text, want string) {
			t.Helper()
			place, _ := ParsePlace(text)
			_, _, err := r.TimesAt(t.Context(), source, place)
			if refused := (*RefusedRequest)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		}
		refusedAs("", serverA+":141", "nothing at or behind "+serverA+":141 has come into the topics of source shop yet: the last change there is of 2000-01-03T00:13:1")
		refusedAs("", serverB+":7", "no record of source shop says where in its log it lies: use times")
		refusedAs("", "0/16B3748", "no record of source shop says where in its log it lies: use times")
		refusedAs("shp", serverA+":117", `source "shp" is not in the configuration (there are: shop)`)
		r.config.Sources = append(r.config.Sources, config.Source{Name: "orders", Type: "mysql", TopicPrefix: "orders"})
		refusedAs("", serverA+":117", "say which with --source (there are: shop, orders)")
		refusedAs("orders", serverA+":117", "source orders has no topic yet")
		r.config.Sources = r.config.Sources[:1]
		r.expire(1, 2) // transactions 101 and 103; then 102 is the first
		r.expire(0, 2)
		exact, _ := ParsePlace(serverA + ":104")
		if before, behind, err := r.TimesAt(t.Context(), "shop", exact); err != nil || behind.Sub(before) != 2*placeMargin {
			t.Errorf("at the first change that is left: from %s to %s, %v", before, behind, err)
		}
		refusedAs("", serverA+":102", serverA+":102 lies before all that the topics of source shop have: they begin at 2000-01-03T00:01:")
	})
}
