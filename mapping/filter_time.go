package mapping

import (
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a worker's image may hold no zones

	"invalidator/cdc"
)

const detailTime = "the filter takes a date or a timestamp of the years 1 to 9999, as SELECT shows it, and this is none: a record without a schema needs its type (declare it in columns)"

// moment is a date or a timestamp as a database writes it.
type moment struct {
	time.Time      // in UTC, where zoned; else the clock's hands, as if they were UTC's
	timed     bool // it has a time of day
	zoned     bool // it says its offset from UTC
}

// parseMoment reads 2026-02-28, and with a blank or a T 23:59:59 and up to nine digits of a second, and then Z, +00, +05:30 or
// nothing: what MySQL, MariaDB and Postgres show, and ISO 8601 as Debezium writes it.
func parseMoment(src []byte) (m moment, ok bool) {
	d := digitReader{b: src}
	year, month, day := d.number(4), d.after('-'), d.after('-')
	if d.bad || year < 1 || month < 1 || month > 12 || day < 1 || day > 31 {
		return m, false
	}
	if len(d.b) == 0 {
		m.Time = time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
		return m, m.Day() == day // the 31st of June is the 1st of July
	}
	if d.b[0] != ' ' && d.b[0] != 'T' {
		return m, false
	}
	d.b = d.b[1:]
	hour, minute, second := d.number(2), d.after(':'), d.after(':')
	nanos := d.fraction()
	offset := d.offset(&m)
	if d.bad || len(d.b) > 0 || hour > 23 || minute > 59 || second > 59 {
		return m, false
	}
	m.timed = true
	m.Time = time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	ok = m.Day() == day
	m.Time = m.Add(-offset)
	return m, ok
}

// digitReader takes numbers of fixed lengths off a text.
type digitReader struct {
	b   []byte
	bad bool
}

func (d *digitReader) number(digits int) (n int) {
	if len(d.b) < digits || !areDigits(d.b[:digits]) {
		d.bad = true
		return 0
	}
	for _, c := range d.b[:digits] {
		n = n*10 + int(c-'0')
	}
	d.b = d.b[digits:]
	return n
}

// after is a number of two digits behind a sign.
func (d *digitReader) after(sign byte) int {
	if d.bad || len(d.b) == 0 || d.b[0] != sign {
		d.bad = true
		return 0
	}
	d.b = d.b[1:]
	return d.number(2)
}

// fraction is in nanoseconds.
func (d *digitReader) fraction() (nanos int) {
	if d.bad || len(d.b) == 0 || d.b[0] != '.' {
		return 0
	}
	n := 1
	for unit := 100_000_000; n < len(d.b) && '0' <= d.b[n] && d.b[n] <= '9'; n++ {
		nanos += unit * int(d.b[n]-'0')
		unit /= 10
	}
	d.bad = n == 1 || n > 10
	d.b = d.b[n:]
	return nanos
}

// offset is what is ahead of UTC.
func (d *digitReader) offset(m *moment) time.Duration {
	if d.bad || len(d.b) == 0 {
		return 0
	}
	m.zoned = true
	sign := d.b[0]
	if sign == 'Z' {
		d.b = d.b[1:]
		return 0
	}
	if sign != '+' && sign != '-' {
		d.bad = true
		return 0
	}
	offset := time.Duration(d.after(sign)) * time.Hour
	if len(d.b) > 0 {
		offset += time.Duration(d.after(':')) * time.Minute
	}
	if len(d.b) > 0 {
		offset += time.Duration(d.after(':')) * time.Second
	}
	if sign == '-' {
		return -offset
	}
	return offset
}

// zoneOf finds the zone that an argument names. Local would be another on each worker.
func zoneOf(a argument) (*time.Location, *fault) {
	zone, err := time.LoadLocation(a.text)
	if err != nil || a.text == "" || a.text == "Local" {
		return nil, a.fault("write a name such as 'Europe/Berlin', or 'UTC'", "%q is no time zone's name", a.text)
	}
	return zone, nil
}

const (
	dateVerbs = "YymdHMSfjGVuzFT%"
	hintVerbs = "%Y %y %m %d %H %M %S %f %j %G %V %u %z, %F for %Y-%m-%d, %T for %H:%M:%S, %% for %"
)

// bindDate writes a moment in a format of strftime, as the clocks of a zone show it: UTC's where none is given. A date is the
// same in every zone.
func bindDate(args []argument) (step, *fault) {
	format, zone := args[0].text, time.UTC
	if format == "" {
		return nil, args[0].fault(hintVerbs, "the format is empty")
	}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		if i++; i == len(format) || strings.IndexByte(dateVerbs, format[i]) < 0 {
			return nil, args[0].fault(hintVerbs, "the format has %q", format[i-1:min(i+1, len(format))])
		}
	}
	if len(args) > 1 {
		var bad *fault
		if zone, bad = zoneOf(args[1]); bad != nil {
			return nil, bad
		}
	}
	return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) {
		m, ok := parseMoment(src)
		if !ok {
			return dst, cdc.Text, detailTime
		}
		if m.timed {
			m.Time = m.In(zone)
		}
		if y := m.Year(); y < 1 || y > 9999 {
			return dst, cdc.Text, detailTime
		}
		return appendDate(dst, m.Time, format), cdc.Text, ""
	}, nil
}

func appendDate(dst []byte, t time.Time, format string) []byte {
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			dst = append(dst, format[i])
			continue
		}
		i++
		switch format[i] {
		case 'Y':
			dst = appendPadded(dst, t.Year(), 4)
		case 'y':
			dst = appendPadded(dst, t.Year()%100, 2)
		case 'm':
			dst = appendPadded(dst, int(t.Month()), 2)
		case 'd':
			dst = appendPadded(dst, t.Day(), 2)
		case 'H':
			dst = appendPadded(dst, t.Hour(), 2)
		case 'M':
			dst = appendPadded(dst, t.Minute(), 2)
		case 'S':
			dst = appendPadded(dst, t.Second(), 2)
		case 'f':
			dst = appendPadded(dst, t.Nanosecond()/1000, 6)
		case 'j':
			dst = appendPadded(dst, t.YearDay(), 3)
		case 'G':
			year, _ := t.ISOWeek()
			dst = appendPadded(dst, year, 4)
		case 'V':
			_, week := t.ISOWeek()
			dst = appendPadded(dst, week, 2)
		case 'u':
			dst = appendPadded(dst, (int(t.Weekday())+6)%7+1, 1)
		case 'z':
			dst = t.AppendFormat(dst, "-0700")
		case 'F':
			dst = t.AppendFormat(dst, time.DateOnly)
		case 'T':
			dst = t.AppendFormat(dst, time.TimeOnly)
		default:
			dst = append(dst, '%')
		}
	}
	return dst
}

func appendPadded(dst []byte, n, width int) []byte {
	for limit := 10; width > 1; width-- {
		if n < limit {
			for range width - 1 {
				dst = append(dst, '0')
			}
			break
		}
		limit *= 10
	}
	return strconv.AppendInt(dst, int64(n), 10)
}

// bindUnix gives the seconds, or finer units, since 1970, rounded down. What does not say its offset is in UTC, or in the zone
// that is given; where its clocks went back the same text is two moments, and both are given, and where they went forward it is
// none, and both readings of it are given.
func bindUnix(perSecond int64) func([]argument) (step, *fault) {
	return func(args []argument) (step, *fault) {
		zone := time.UTC
		if len(args) > 0 {
			var bad *fault
			if zone, bad = zoneOf(args[0]); bad != nil {
				return nil, bad
			}
		}
		since := func(t time.Time) int64 {
			return t.Unix()*perSecond + int64(t.Nanosecond())*perSecond/int64(time.Second)
		}
		return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) {
			m, ok := parseMoment(src)
			if !ok {
				return dst, cdc.Integer, detailTime
			}
			if m.zoned || zone == time.UTC {
				return strconv.AppendInt(dst, since(m.Time), 10), cdc.Integer, ""
			}
			first, second := inZone(m.Time, zone)
			dst = strconv.AppendInt(dst, since(first), 10)
			if first.Equal(second) {
				return dst, cdc.Integer, ""
			}
			dst = append(dst, separator...)
			return strconv.AppendInt(dst, since(second), 10), cdc.Ambiguous, ""
		}, nil
	}
}

// inZone finds the moments at which a zone's clocks show hands: one, or two around a change of the clocks.
func inZone(hands time.Time, zone *time.Location) (first, second time.Time) {
	reading := func(at time.Time) (t time.Time, shown bool) {
		_, offset := at.In(zone).Zone()
		t = hands.Add(-time.Duration(offset) * time.Second)
		_, then := t.In(zone).Zone()
		return t, then == offset
	}
	// No zone that the library knows changes its clocks twice within three days.
	first, before := reading(hands.Add(-36 * time.Hour))
	second, after := reading(hands.Add(36 * time.Hour))
	switch {
	case before && !after:
		return first, first
	case after && !before:
		return second, second
	}
	return first, second
}
