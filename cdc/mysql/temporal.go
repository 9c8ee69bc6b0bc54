package mysql

import (
	"fmt"
	"strconv"
	"time"
)

// Dates and times as SELECT shows them. dec is the number of declared fraction digits, 0 to 6; the fraction stands in
// (dec+1)/2 bytes behind the whole part, in units that depend on dec.

const zeroDate = "0000-00-00"

// fraction is what follows the seconds: nothing, or a point and dec digits.
func fraction(units uint64, dec int) string {
	if dec <= 0 || dec > 6 {
		return ""
	}
	if dec%2 == 1 {
		units /= 10 // odd numbers of digits are stored with one more
	}
	return fmt.Sprintf(".%0*d", dec, units)
}

// timestamp2 is TIMESTAMP: seconds since 1970 and a fraction, shown in UTC.
func timestamp2(c *cursor, dec int) string {
	sec, frac := c.be(4), c.be((dec+1)/2)
	return instant(sec) + fraction(frac, dec)
}

func instant(sec uint64) string {
	if sec == 0 {
		return zeroDate + " 00:00:00"
	}
	return time.Unix(int64(sec), 0).UTC().Format(time.DateTime)
}

// datetime2 is DATETIME: packed fields behind a sign bit, which is always set.
func datetime2(c *cursor, dec int) string {
	v, frac := c.be(5)&^(1<<39), c.be((dec+1)/2)
	ymd, hms := v>>17, v&(1<<17-1)
	ym, day := ymd>>5, ymd&31
	return fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d", ym/13, ym%13, day, hms>>12, hms>>6&63, hms&63) + fraction(frac, dec)
}

// time2 is TIME: a signed number of packed fields with their fraction as its lowest bytes, behind an offset.
func time2(c *cursor, dec int) string {
	fracBytes := (dec + 1) / 2
	v := int64(c.be(3+fracBytes)) - 0x800000<<(8*fracBytes)
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	hms, frac := v>>(8*fracBytes), v&(1<<(8*fracBytes)-1)
	return fmt.Sprintf("%s%02d:%02d:%02d", sign, hms>>12&1023, hms>>6&63, hms&63) + fraction(uint64(frac), dec)
}

// date is DATE.
func date(c *cursor) string {
	v := c.le(3)
	return fmt.Sprintf("%04d-%02d-%02d", v>>9, v>>5&15, v&31)
}

// oldDatetime and oldTime are the forms before MySQL 5.6: decimal digits, without a fraction.
func oldDatetime(c *cursor) string {
	v := c.le(8)
	d, t := v/1000000, v%1000000
	return fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d", d/10000, d/100%100, d%100, t/10000, t/100%100, t%100)
}

func oldTime(c *cursor) string {
	v := signed(c.le(3), 3)
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	return fmt.Sprintf("%s%02d:%02d:%02d", sign, v/10000, v/100%100, v%100)
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
