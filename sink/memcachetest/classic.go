package memcachetest

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

func get(withCAS bool) func(*session, []string) error {
	return func(ses *session, keys []string) error {
		if len(keys) == 0 {
			return ses.answer("ERROR")
		}
		if slices.ContainsFunc(keys, func(k string) bool { return len(k) > maxKey }) {
			return ses.answer(badFormat)
		}
		for _, key := range keys {
			ses.touch(key)
			it, ok := ses.store.get(key)
			ses.server.counters.asked(ok)
			if !ok {
				continue
			}
			fmt.Fprintf(ses.out, "VALUE %s %d %d", key, it.flags, len(it.value))
			if withCAS {
				fmt.Fprintf(ses.out, " %d", it.cas)
			}
			fmt.Fprintf(ses.out, "\r\n%s\r\n", it.value)
		}
		return ses.answer("END")
	}
}

// set is set and add (<key> <flags> <exptime> <bytes> [noreply]) and cas, which has the CAS value after <bytes>.
func set(kind string) func(*session, []string) error {
	fields := 4
	if kind == "cas" {
		fields = 5
	}
	return func(ses *session, words []string) error {
		words, quiet := noreply(words, fields)
		if len(words) != fields {
			return ses.answer("ERROR")
		}
		flags, err1 := strconv.ParseUint(words[1], 10, 32)
		seconds, err2 := strconv.Atoi(words[2])
		length, err3 := strconv.Atoi(words[3])
		cas, err4 := strconv.ParseUint(words[fields-1], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil || length < 0 || len(words[0]) > maxKey {
			return ses.answer(badFormat) // the data block is then read as a command, as memcached does
		}
		value, ok, err := ses.value(length)
		if !ok {
			return err
		}
		u := update{value: value, flags: uint32(flags), expires: expiry(seconds), add: kind == "add"}
		if kind == "cas" {
			u.cas = &cas
		}
		ses.server.counters.cmdSet.Add(1)
		ses.touch(words[0])
		_, v := ses.store.set(words[0], u)
		if quiet {
			return nil
		}
		return ses.answer([...]string{done: "STORED", notFound: "NOT_FOUND", exists: "EXISTS", refused: "NOT_STORED"}[v])
	}
}

func classicDelete(ses *session, words []string) error {
	words, quiet := noreply(words, 1)
	switch {
	case len(words) == 0:
		return ses.answer("ERROR")
	case len(words) > 2 || len(words) == 2 && words[1] != "0": // a time of zero is what old clients send
		return ses.answer(badFormat + ".  Usage: delete <key> [noreply]")
	case len(words[0]) > maxKey:
		return ses.answer(badFormat)
	}
	ses.touch(words[0])
	v := ses.store.remove(words[0], removal{})
	switch {
	case quiet:
		return nil
	case v == notFound:
		return ses.answer("NOT_FOUND")
	}
	return ses.answer("DELETED")
}

func flushAll(ses *session, words []string) error {
	_, quiet := noreply(words, 0)
	ses.store.flush()
	if quiet {
		return nil
	}
	return ses.answer("OK")
}

func version(ses *session, _ []string) error { return ses.answer("VERSION", Version) }

// noreply cuts a last word `noreply` off, where there is one after the fields.
func noreply(words []string, fields int) (_ []string, quiet bool) {
	if last := len(words) - 1; last >= fields && words[last] == "noreply" {
		return words[:last], true
	}
	return words, false
}

// expiry is when an item expires that was given these seconds: below zero at once, zero never, above 30 days a Unix time.
func expiry(seconds int) time.Time {
	switch {
	case seconds == 0:
		return time.Time{}
	case seconds > relativeTTL:
		return time.Unix(int64(seconds), 0)
	}
	return time.Now().Add(time.Duration(seconds) * time.Second)
}
