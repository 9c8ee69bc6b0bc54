package mysql

import (
	"strconv"
	"time"
)

// Dates and times as SELECT shows them. dec is the number of declared fraction digits, 0 to 6; the fraction stands in
// (dec+1)/2 bytes behind the whole part, in units that depend on dec.

const zeroDate = "0000-00-00"

// longest is the longest of these texts: a DATETIME with six digits.
const longest = len("0000-00-00 00:00:00.000000")

// appendFraction appends what follows the seconds: nothing, or a point and dec digits.
func appendFraction(b []byte, units uint64, dec int) []byte {
	if dec <= 0 || dec > 6 {
		return b
	}
	if dec%2 == 1 {
		units /= 10 // odd numbers of digits are stored with one more
	}
	return appendPadded(append(b, '.'), units, dec)
}

// appendDate and appendTime write 0000-00-00 and 00:00:00.
func appendDate(b []byte, year, month, day uint64) []byte {
	b = append(appendPadded(b, year, 4), '-')
	return appendPadded(append(appendPadded(b, month, 2), '-'), day, 2)
}

func appendTime(b []byte, hour, minute, second uint64) []byte {
	b = append(appendPadded(b, hour, 2), ':')
	return appendPadded(append(appendPadded(b, minute, 2), ':'), second, 2)
}

// timestamp2 is TIMESTAMP: seconds since 1970 and a fraction, shown in UTC.
func timestamp2(c *cursor, dec int) string {
	sec, frac := c.be(4), c.be((dec+1)/2)
	return string(appendFraction(appendInstant(make([]byte, 0, longest), sec), frac, dec))
}

func instant(sec uint64) string { return string(appendInstant(make([]byte, 0, longest), sec)) }

func appendInstant(b []byte, sec uint64) []byte {
	if sec == 0 {
		return append(b, zeroDate+" 00:00:00"...)
	}
	return time.Unix(int64(sec), 0).UTC().AppendFormat(b, time.DateTime)
}

// datetime2 is DATETIME: packed fields behind a sign bit, which is always set.
func datetime2(c *cursor, dec int) string {
	v, frac := c.be(5)&^(1<<39), c.be((dec+1)/2)
	ymd, hms := v>>17, v&(1<<17-1)
	ym, day := ymd>>5, ymd&31
	b := append(appendDate(make([]byte, 0, longest), ym/13, ym%13, day), ' ')
	return string(appendFraction(appendTime(b, hms>>12, hms>>6&63, hms&63), frac, dec))
}

// time2 is TIME: a signed number of packed fields with their fraction as its lowest bytes, behind an offset.
func time2(c *cursor, dec int) string {
	fracBytes := (dec + 1) / 2
	v := int64(c.be(3+fracBytes)) - 0x800000<<(8*fracBytes)
	b := make([]byte, 0, longest)
	if v < 0 {
		b, v = append(b, '-'), -v
	}
	hms, frac := uint64(v)>>(8*fracBytes), uint64(v)&(1<<(8*fracBytes)-1)
	return string(appendFraction(appendTime(b, hms>>12&1023, hms>>6&63, hms&63), frac, dec))
}

// date is DATE.
func date(c *cursor) string {
	v := c.le(3)
	return string(appendDate(make([]byte, 0, longest), v>>9, v>>5&15, v&31))
}

// oldDatetime and oldTime are the forms before MySQL 5.6: decimal digits, without a fraction.
func oldDatetime(c *cursor) string {
	v := c.le(8)
	d, t := v/1000000, v%1000000
	b := append(appendDate(make([]byte, 0, longest), d/10000, d/100%100, d%100), ' ')
	return string(appendTime(b, t/10000, t/100%100, t%100))
}

func oldTime(c *cursor) string {
	v := signed(c.le(3), 3)
	b := make([]byte, 0, longest)
	if v < 0 {
		b, v = append(b, '-'), -v
	}
	t := uint64(v)
	return string(appendTime(b, t/10000, t/100%100, t%100))
}

// year is YEAR; the year zero has four digits too.
func year(c *cursor) string {
	if y := c.le(1); y != 0 {
		return strconv.FormatUint(1900+y, 10)
	}
	return "0000"
}

// signed gives an n-byte number its sign.
func signed(v uint64, n int) int64 {
	shift := 64 - 8*n
	return int64(v<<shift) >> shift
}
