package envelope

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"invalidator/cdc"
)

const (
	whyDate = "a date outside the years 1 to 9999"
	whyTime = "not a time as Debezium writes it"
)

const secondsADay = 24 * 60 * 60

// count reads a whole number of units; text is what stands there instead, already as a text.
func count(t *texts, raw []byte) (n int64, text string, ok bool) {
	if raw[0] == '"' {
		b, ok := t.unquote(raw)
		return 0, view(b), ok && len(b) > 0
	}
	n, err := strconv.ParseInt(view(raw), 10, 64)
	return n, "", err == nil
}

func inYears(t time.Time) bool { return t.Year() >= 1 && t.Year() <= 9999 }

func (f *form) date(t *texts, raw []byte) cdc.Value {
	days, text, ok := count(t, raw)
	if !ok {
		return unclearValue(raw, whyTime)
	}
	if text != "" {
		return cdc.Value{Kind: cdc.Text, S: strings.TrimSuffix(text, "Z")}
	}
	const bound = 4_000_000 // days; beyond it the years are out of range
	if days < -bound || days > bound {
		return unclearValue(raw, whyDate)
	}
	day := time.Unix(days*secondsADay, 0).UTC()
	if !inYears(day) {
		return unclearValue(raw, whyDate)
	}
	start := len(t.b)
	t.b = day.AppendFormat(t.b, time.DateOnly)
	return cdc.Value{Kind: cdc.Text, S: t.textSince(start)}
}

func (f *form) timestamp(t *texts, raw []byte) cdc.Value {
	n, text, ok := count(t, raw)
	if !ok || text == "" && f.unit == 0 {
		return unclearValue(raw, whyTime)
	}
	if text != "" {
		return f.isoTimestamp(t, raw, text)
	}
	seconds, rest := floorDiv(n, f.unit)
	at := time.Unix(seconds, 0).UTC()
	if !inYears(at) {
		return unclearValue(raw, whyDate)
	}
	start := len(t.b)
	t.b = at.AppendFormat(t.b, time.DateTime)
	return f.withFraction(t, start, rest*(nanos/f.unit))
}

func floorDiv(n, by int64) (quotient, rest int64) {
	quotient, rest = n/by, n%by
	if rest < 0 {
		quotient, rest = quotient-1, rest+by
	}
	return quotient, rest
}

// isoTimestamp reads 2026-11-30T01:02:03.123456Z: Debezium writes the digits that the column declares.
func (f *form) isoTimestamp(t *texts, raw []byte, text string) cdc.Value {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		if at, err = time.Parse("2006-01-02T15:04:05.999999999", text); err != nil {
			return unclearValue(raw, whyTime)
		}
	}
	if at = at.UTC(); !inYears(at) {
		return unclearValue(raw, whyDate)
	}
	iso := *f
	if iso.digits == unknown && iso.conn != cdc.Postgres {
		_, fraction, _ := strings.Cut(text, ".")
		iso.digits = digitsLen([]byte(fraction))
	}
	start := len(t.b)
	t.b = at.AppendFormat(t.b, time.DateTime)
	return iso.withFraction(t, start, int64(at.Nanosecond()))
}

// time reads a time of day, or MySQL's span of up to 838 hours.
func (f *form) time(t *texts, raw []byte) cdc.Value {
	n, text, ok := count(t, raw)
	if !ok || text == "" && f.unit == 0 {
		return unclearValue(raw, whyTime)
	}
	if text != "" {
		return cdc.Value{Kind: cdc.Text, S: text}
	}
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	seconds, rest := n/f.unit, n%f.unit
	if n < 0 || seconds > 1000*3600 {
		return unclearValue(raw, whyTime)
	}
	start := len(t.b)
	b := append(t.b, sign...)
	b = appendTwo(b, seconds/3600)
	b = appendTwo(append(b, ':'), seconds/60%60)
	t.b = appendTwo(append(b, ':'), seconds%60)
	return f.withFraction(t, start, rest*(nanos/f.unit))
}

func appendTwo(b []byte, n int64) []byte {
	if n < 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, n, 10)
}

// withFraction adds a fraction of a second, given in nanoseconds, to whole seconds, which stand in t from start on: with the
// declared digits, or as Postgres does without trailing zeros. Where nothing declares the digits, each count that Debezium
// would write in this unit is a candidate.
func (f *form) withFraction(t *texts, start int, ns int64) cdc.Value {
	var buf [20]byte
	digits := strconv.AppendInt(buf[:0], nanos+ns, 10)[1:] // nine of them
	needed := len(bytes.TrimRight(digits, "0"))
	end := len(t.b)
	show := func(n int, zone string) string {
		if n > 0 {
			t.b = append(append(t.b[:end], '.'), digits[:n]...)
		}
		t.b = append(t.b, zone...)
		return t.textSince(start)
	}
	zone := ""
	if f.zoned {
		zone = "+00"
	}
	switch {
	case f.conn == cdc.Postgres:
		return cdc.Value{Kind: cdc.Text, S: show(min(needed, 6), zone)}
	case f.conn != "" && f.digits != unknown:
		return cdc.Value{Kind: cdc.Text, S: show(f.digits, "")}
	}
	var all []string
	for _, n := range f.digitCounts(needed) {
		all = append(all, strings.Clone(show(n, "")))
		t.b = t.b[:end]
	}
	if f.conn == "" { // a tombstone's key does not say which
		if postgres := show(min(needed, 6), zone); !slices.Contains(all, postgres) {
			all = append(all, postgres)
		}
	}
	return cdc.MaybeOneOf(all...)
}

// digitCounts are the counts of fraction digits that a MySQL column may declare whose value needs that many and came in
// this unit: the likeliest first. Where it declares one, that.
func (f *form) digitCounts(needed int) []int {
	if f.digits != unknown {
		return []int{f.digits}
	}
	lowest, highest := max(needed, 4), 6 // adaptive: microseconds of a datetime carry 4 to 6 digits
	switch {
	case f.reader == asTime:
		lowest = needed
	case f.unit == millis:
		lowest, highest = needed, 3
	}
	likely := 6
	switch {
	case lowest == 0:
		likely = 0
	case lowest <= 3:
		likely = 3
	}
	counts := []int{likely}
	for n := lowest; n <= highest; n++ {
		if n != likely {
			counts = append(counts, n)
		}
	}
	return counts
}

func (f *form) year(t *texts, raw []byte) cdc.Value {
	text := t.of(raw)
	if !isJSONInt(text) || text[0] == '-' || len(text) > 4 {
		return unclearValue(raw, "no year")
	}
	return cdc.Value{Kind: cdc.Integer, S: strings.Repeat("0", 4-len(text)) + text}
}
