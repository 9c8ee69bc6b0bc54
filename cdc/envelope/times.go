package envelope

import (
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
func count(raw []byte) (n int64, text string, ok bool) {
	if raw[0] == '"' {
		b, ok := unquote(raw)
		return 0, string(b), ok && len(b) > 0
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, "", err == nil
}

func inYears(t time.Time) bool { return t.Year() >= 1 && t.Year() <= 9999 }

func (f *form) date(raw []byte) cdc.Value {
	days, text, ok := count(raw)
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
	t := time.Unix(days*secondsADay, 0).UTC()
	if !inYears(t) {
		return unclearValue(raw, whyDate)
	}
	return cdc.Value{Kind: cdc.Text, S: t.Format(time.DateOnly)}
}

func (f *form) timestamp(raw []byte) cdc.Value {
	n, text, ok := count(raw)
	if !ok || text == "" && f.unit == 0 {
		return unclearValue(raw, whyTime)
	}
	if text != "" {
		return f.isoTimestamp(raw, text)
	}
	seconds, rest := floorDiv(n, f.unit)
	t := time.Unix(seconds, 0).UTC()
	if !inYears(t) {
		return unclearValue(raw, whyDate)
	}
	return f.withFraction(t.Format(time.DateTime), rest*(nanos/f.unit))
}

func floorDiv(n, by int64) (quotient, rest int64) {
	quotient, rest = n/by, n%by
	if rest < 0 {
		quotient, rest = quotient-1, rest+by
	}
	return quotient, rest
}

// isoTimestamp reads 2026-11-30T01:02:03.123456Z: Debezium writes the digits that the column declares.
func (f *form) isoTimestamp(raw []byte, text string) cdc.Value {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		if t, err = time.Parse("2006-01-02T15:04:05.999999999", text); err != nil {
			return unclearValue(raw, whyTime)
		}
	}
	if t = t.UTC(); !inYears(t) {
		return unclearValue(raw, whyDate)
	}
	iso := *f
	if iso.digits == unknown && iso.conn != cdc.Postgres {
		_, fraction, _ := strings.Cut(text, ".")
		iso.digits = digitsLen([]byte(fraction))
	}
	return iso.withFraction(t.Format(time.DateTime), int64(t.Nanosecond()))
}

// time reads a time of day, or MySQL's span of up to 838 hours.
func (f *form) time(raw []byte) cdc.Value {
	n, text, ok := count(raw)
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
	b := append(make([]byte, 0, 32), sign...)
	b = appendTwo(b, seconds/3600)
	b = appendTwo(append(b, ':'), seconds/60%60)
	b = appendTwo(append(b, ':'), seconds%60)
	return f.withFraction(string(b), rest*(nanos/f.unit))
}

func appendTwo(b []byte, n int64) []byte {
	if n < 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, n, 10)
}

// withFraction adds a fraction of a second, given in nanoseconds, to whole seconds: with the declared digits, or as
// Postgres does without trailing zeros. Where nothing declares the digits, each count that Debezium would write in this
// unit is a candidate.
func (f *form) withFraction(whole string, ns int64) cdc.Value {
	digits := strconv.FormatInt(nanos+ns, 10)[1:] // nine of them
	show := func(n int) string {
		if n == 0 {
			return whole
		}
		return whole + "." + digits[:n]
	}
	needed := len(strings.TrimRight(digits, "0"))
	postgres := show(min(needed, 6))
	if f.zoned {
		postgres += "+00"
	}
	if f.conn == cdc.Postgres {
		return cdc.Value{Kind: cdc.Text, S: postgres}
	}
	var texts []string
	if f.digits != unknown {
		texts = append(texts, show(f.digits))
	} else {
		for _, n := range f.digitCounts(needed) {
			texts = append(texts, show(n))
		}
	}
	if f.conn == "" && !slices.Contains(texts, postgres) { // a tombstone's key does not say which
		texts = append(texts, postgres)
	}
	return cdc.MaybeOneOf(texts...)
}

// digitCounts are the counts of fraction digits that a MySQL column may declare whose value needs that many and came in
// this unit: the likeliest first.
func (f *form) digitCounts(needed int) []int {
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

func (f *form) year(raw []byte) cdc.Value {
	text := textOf(raw)
	if !isJSONInt(text) || text[0] == '-' || len(text) > 4 {
		return unclearValue(raw, "no year")
	}
	return cdc.Value{Kind: cdc.Integer, S: strings.Repeat("0", 4-len(text)) + text}
}
