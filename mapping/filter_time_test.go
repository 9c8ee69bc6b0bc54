package mapping

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"invalidator/cdc/cdctest"
)

func TestTimeFilters(t *testing.T) {
	for _, c := range []struct{ filters, in, want string }{
		{"date('%Y-%m-%d')", "2026-02-28", "2026-02-28"},
		{"date('%Y%m%d')", "2026-02-28 23:59:59.000001", "20260228"},
		{"date('%d.%m.%y')", "2026-02-28 21:59:59+00", "28.02.26"},
		{"date('%F')", "2024-02-29", "2024-02-29"},
		{"date('%FT%T.%f')", "2026-02-28 23:59:59.12", "2026-02-28T23:59:59.120000"},
		{"date('%f')", "2026-02-28 23:59:59.123456789", "123456"},
		{"date('%j')", "2026-01-05", "005"},
		{"date('%G-W%V-%u')", "2027-01-01", "2026-W53-5"},
		{"date('%u')", "2026-03-01", "7"}, // a Sunday
		{"date('%Y')", "0099-01-01", "0099"},
		{"date('100%%')", "2026-02-28", "100%"},
		{"date('{%Y|%m}')", "2026-02-28", "{2026|02}"},

		// a zone: what does not say its offset is in UTC
		{"date('%F', 'Europe/Berlin')", "2026-02-28 23:30:00", "2026-03-01"},
		{"date('%F', 'Europe/Berlin')", "2026-02-28 23:30:00+00", "2026-03-01"},
		{"date('%F', 'Europe/Berlin')", "2026-02-28T23:30:00.000000Z", "2026-03-01"},
		{"date('%FT%T%z', 'Asia/Kolkata')", "2026-02-28 23:30:00", "2026-03-01T05:00:00+0530"},
		{"date('%F', 'America/New_York')", "2026-03-01 02:00:00", "2026-02-28"},
		{"date('%F', 'America/New_York')", "2026-03-01", "2026-03-01"}, // a date is the same everywhere
		{"date('%FT%T')", "2026-02-28 23:59:59+05:30", "2026-02-28T18:29:59"},
		{"date('%FT%T')", "2026-02-28 23:59:59-08", "2026-03-01T07:59:59"},

		// A9: when the clocks go back, two moments have one text; %z tells them apart.
		{"date('%FT%T', 'America/New_York')", "2024-11-03 05:30:00.120", "2024-11-03T01:30:00"},
		{"date('%FT%T', 'America/New_York')", "2024-11-03 06:30:00.120", "2024-11-03T01:30:00"},
		{"date('%FT%T%z', 'America/New_York')", "2024-11-03 05:30:00.120", "2024-11-03T01:30:00-0400"},
		{"date('%FT%T%z', 'America/New_York')", "2024-11-03 06:30:00.120", "2024-11-03T01:30:00-0500"},

		{"unix", "1970-01-01", "0"},
		{"unix", "2026-02-28 23:59:59.999", "1772323199"},
		{"unix", "2026-02-28 23:59:59+02", "1772315999"},
		{"unix_ms", "2026-02-28 23:59:59.12", "1772323199120"},
		{"unix_ms", "2026-02-28 23:59:59.000999", "1772323199000"},
		{"unix", "1969-12-31 23:59:59.5", "-1"}, // rounded down
		{"unix_ms", "1969-12-31 23:59:59.9995", "-1"},
		{"unix|div(60)", "1970-01-01 01:00:00", "60"},
		{"unix('Europe/Berlin')", "2026-07-01 12:00:00", "1782900000"},
		{"unix('Europe/Berlin')", "2026-07-01 12:00:00+00", "1782907200"}, // it says its offset
		{"unix('UTC')", "1970-01-01 00:00:01", "1"},

		// A9: 02:30 is twice, an hour apart, when Berlin's clocks go back, and never when they go forward.
		{"unix('Europe/Berlin')", "2026-10-25 01:59:59", "1792886399"},
		{"unix('Europe/Berlin')", "2026-10-25 02:30:00", "1792888200 or 1792891800"},
		{"unix('Europe/Berlin')", "2026-10-25 03:00:00", "1792893600"},
		{"unix('Europe/Berlin')", "2026-03-29 02:30:00", "1774747800 or 1774744200"},
		{"unix_ms('Europe/Berlin')", "2026-10-25 02:30:00.5", "1792888200500 or 1792891800500"},
		{"unix('Europe/Berlin')|mod(7200)|pad(5)", "2026-10-25 02:30:00", "01800 or 05400"},

		{"unix", "", "skip type"},
		{"unix", "2026-02-30", "skip type"},
		{"unix", "2026-02-29 00:00:00", "skip type"},
		{"unix", "0000-00-00", "skip type"},
		{"unix", "0000-00-00 00:00:00", "skip type"},
		{"unix", "2026-00-10", "skip type"},
		{"unix", "infinity", "skip type"},
		{"unix", "0044-03-15 BC", "skip type"},
		{"unix", "10000-01-01", "skip type"},
		{"unix", "2026-02-28 24:00:00", "skip type"},
		{"unix", "2026-02-28 23:59:60", "skip type"},
		{"unix", "2026-02-28 23:59", "skip type"},
		{"unix", "2026-02-28 23:59:59.", "skip type"},
		{"unix", "2026-02-28 23:59:59.1234567890", "skip type"},
		{"unix", "2026-02-28 23:59:59 ", "skip type"},
		{"unix", "2026-02-28 23:59:59+0", "skip type"},
		{"unix", "2026-02-28+00", "skip type"},
		{"unix", "23:59:59", "skip type"},
		{"unix", "1772323199000", "skip type"},
		{"date('%F', 'Pacific/Auckland')", "9999-12-31 23:00:00", "skip type"},
	} {
		if got := filtered(t, c.filters, text(c.in)); got != c.want {
			t.Errorf("%s of %q: got %q, want %q", c.filters, c.in, got, c.want)
		}
	}
	if got := filtered(t, "unix", integer64("1772323199")); got != "skip type" {
		t.Errorf("a number: got %q", got)
	}
}

// Every date and timestamp of the table of types can be told in seconds, however a server shows it.
func TestTimeFiltersTakeEveryServersTexts(t *testing.T) {
	seen := 0
	for _, v := range cdctest.Types(t) {
		if typesOf(strings.Join(strings.Fields(v.Type), " "))&(typeDate|typeTime) == 0 || typesOf(v.Type) == anyType {
			continue
		}
		seen++
		got := filtered(t, "unix", v.Value)
		if _, err := strconv.Atoi(got); err != nil {
			t.Errorf("%s %s: %s gives %s", v.Server, v.Type, v.Value.S, got)
		}
		if same := filtered(t, "date('%F %T')", v.Value); !strings.HasPrefix(v.Value.S, strings.TrimSuffix(same, " 00:00:00")) {
			t.Errorf("%s %s: %s gives %s", v.Server, v.Type, v.Value.S, same)
		}
	}
	if seen < 10 {
		t.Errorf("only %d types", seen)
	}
}

var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns"}

func TestTimeFiltersAgreeWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		at := time.Unix(rapid.Int64Range(-60_000_000_000, 250_000_000_000).Draw(rt, "seconds"), rapid.Int64Range(0, 999_999).Draw(rt, "micros")*1000).UTC()
		name := rapid.SampledFrom(zones).Draw(rt, "zone")
		zone, err := time.LoadLocation(name)
		if err != nil {
			rt.Fatal(err)
		}
		in := text(at.Format("2006-01-02 15:04:05.000000"))
		local := at.In(zone)
		year, week := local.ISOWeek()
		if local.Year() < 1 || year < 1 || year > 9999 {
			return
		}
		for format, want := range map[string]string{
			"%F %T.%f %z":     local.Format("2006-01-02 15:04:05.000000 -0700"),
			"%Y-%m-%d %H:%M:": local.Format("2006-01-02 15:04:"),
			"%y %j %S":        local.Format("06 002 05"),
			"%G-%V":           fmt.Sprintf("%04d-%02d", year, week),
		} {
			if got := filtered(t, fmt.Sprintf("date('%s', '%s')", format, name), in); got != want {
				rt.Errorf("%s of %s in %s: got %q, want %q", format, in.S, name, got, want)
			}
		}
		if got := filtered(t, "unix_ms", in); got != fmt.Sprint(at.UnixMilli()) {
			rt.Errorf("unix_ms of %s: got %s", in.S, got)
		}
		// What a zone's clocks show leads back to the moment, among at most two.
		hands := text(local.Format("2006-01-02 15:04:05.000000"))
		got := strings.Split(filtered(t, fmt.Sprintf("unix('%s')", name), hands), " or ")
		if len(got) > 2 || got[0] != fmt.Sprint(at.Unix()) && got[len(got)-1] != fmt.Sprint(at.Unix()) {
			rt.Errorf("unix of %s in %s: got %v, want %d", hands.S, name, got, at.Unix())
		}
	})
}
