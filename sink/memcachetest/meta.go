package memcachetest

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// flags are the words after a meta command's key (and length): a letter each, with an argument glued on.
type flags []string

// parseFlags checks that every flag is one of the allowed letters and comes once. A problem is the answer to give.
func parseFlags(words []string, allowed, invalid, duplicate string) (_ flags, problem string) {
	seen := ""
	for _, w := range words {
		letter := w[:1]
		if strings.Contains(seen, letter) {
			return nil, duplicate
		}
		if !strings.Contains(allowed, letter) {
			return nil, invalid
		}
		seen += letter
	}
	return words, ""
}

// get returns the argument of the flag.
func (fs flags) get(letter byte) (arg string, ok bool) {
	for _, f := range fs {
		if f[0] == letter {
			return f[1:], true
		}
	}
	return "", false
}

func (fs flags) has(letter byte) bool {
	_, ok := fs.get(letter)
	return ok
}

// number reads the argument of a flag that takes one. It is nil where the flag is absent; ok is false where it is no number.
func (fs flags) number(letter byte) (n *int64, ok bool) {
	arg, present := fs.get(letter)
	if !present {
		return nil, true
	}
	v, err := strconv.ParseInt(arg, 10, 64)
	return &v, err == nil
}

// cas reads the argument of C. It is nil where the flag is absent; ok is false where it is no number.
func (fs flags) cas() (cas *uint64, ok bool) {
	arg, present := fs.get('C')
	if !present {
		return nil, true
	}
	v, err := strconv.ParseUint(arg, 10, 64)
	return &v, err == nil
}

// metaKey is the key of a meta command.
type metaKey struct {
	key  string // what the store holds
	sent string // as the client wrote it: the key, or with the flag b its base64
}

// shown is what k repeats.
func (k metaKey) shown() string {
	if k.sent != k.key {
		return k.sent + " b"
	}
	return k.key
}

// of is k as mg repeats it where there is an item: as that one was stored, however it is asked for.
func (k metaKey) of(it *item) metaKey {
	k.sent = k.key
	if it.base64 {
		k.sent = base64.StdEncoding.EncodeToString([]byte(k.key))
	}
	return k
}

// show repeats in a code's line what the client asked to see, in its order. it is nil where there is no item.
func (fs flags) show(code string, key metaKey, it *item) string {
	for _, f := range fs {
		switch {
		case f[0] == 'k':
			code += " k" + key.shown()
		case f[0] == 'O':
			code += " " + f
		case it == nil:
		case f[0] == 'c':
			code += fmt.Sprintf(" c%d", it.cas)
		case f[0] == 'f':
			code += fmt.Sprintf(" f%d", it.flags)
		case f[0] == 's':
			code += fmt.Sprintf(" s%d", len(it.value))
		case f[0] == 't':
			code += fmt.Sprintf(" t%d", it.ttl())
		}
	}
	return code
}

const badToken = "CLIENT_ERROR bad token in command line format"

// wording is what a command says of its flags, and of a key that is no base64.
type wording struct{ invalid, duplicate, undecodable string }

var (
	getWording    = wording{"CLIENT_ERROR invalid flag", "CLIENT_ERROR duplicate flag", "CLIENT_ERROR error decoding key"}
	deleteWording = wording{badDeleteFlag, badDeleteFlag, badDeleteFlag}
)

const badDeleteFlag = "CLIENT_ERROR invalid or duplicate flag"

// metaGet is mg <key> <flags>*. N makes a placeholder on a miss.
func metaGet(ses *session, words []string) error {
	key, fs, problem := parseKey(words, 1, "vcfkOqstNb", getWording)
	vivify, ok := fs.number('N')
	switch {
	case problem != "":
		return ses.answer(problem)
	case !ok:
		return ses.answer(badToken)
	}
	var placeholder int64
	if vivify != nil {
		placeholder = *vivify
	}
	ses.touch(key.key)
	it, won, ok := ses.store.lease(key.key, vivify != nil, expiry(int(placeholder)))
	ses.server.counters.asked(ok)
	if !ok {
		if fs.has('q') {
			return nil
		}
		return ses.answer(fs.show("EN", key, nil))
	}
	code := "HD"
	if fs.has('v') {
		code = fmt.Sprintf("VA %d", len(it.value))
	}
	line := fs.show(code, key.of(&it), &it)
	if it.won {
		line += " Z"
	}
	if it.stale {
		line += " X"
	}
	if won {
		line += " W"
	}
	if fs.has('v') {
		return ses.answer(line + "\r\n" + string(it.value))
	}
	return ses.answer(line)
}

// metaSet is ms <key> <length> <flags>*.
func metaSet(ses *session, words []string) error {
	key, fs, problem := parseKey(words, 2, "ckOqCFITMb", getWording)
	if problem == badFormat || problem == "ERROR" {
		return ses.answer(problem) // the data block is then read as a command, as memcached does
	}
	length, err := strconv.Atoi(words[1])
	if err != nil || length < 0 {
		return ses.answer(badFormat)
	}
	value, ok, err := ses.value(length)
	if !ok {
		return err
	}
	u := update{value: value, late: fs.has('I'), base64: fs.has('b')}
	if problem == "" {
		problem = fs.setInto(&u)
	}
	if problem != "" {
		return ses.answer(problem)
	}
	ses.server.counters.cmdSet.Add(1)
	ses.touch(key.key)
	cas, v := ses.store.set(key.key, u)
	if fs.has('q') && v == done {
		return nil
	}
	code := [...]string{done: "HD", notFound: "NF", exists: "EX", refused: "NS"}[v]
	return ses.answer(fs.show(code, key, &item{cas: cas, flags: u.flags, value: value, expires: u.expires}))
}

// setInto reads ms's flags.
func (fs flags) setInto(u *update) (problem string) {
	cas, ok1 := fs.cas()
	clientFlags, ok2 := fs.number('F')
	ttl, ok3 := fs.number('T')
	if !ok1 || !ok2 || !ok3 {
		return badToken
	}
	u.cas = cas
	if clientFlags != nil {
		u.flags = uint32(*clientFlags)
	}
	if ttl != nil {
		u.expires = expiry(int(*ttl))
	}
	mode, _ := fs.get('M')
	switch strings.ToUpper(mode) {
	case "", "S":
	case "E":
		u.add = true
	case "R":
		u.replace = true
	default:
		return "CLIENT_ERROR invalid mode for ms M token"
	}
	return ""
}

// metaDelete is md <key> <flags>*. I marks the item stale in place of deleting it.
func metaDelete(ses *session, words []string) error {
	key, fs, problem := parseKey(words, 1, "kOqCITb", deleteWording)
	cas, ok1 := fs.cas()
	ttl, ok2 := fs.number('T')
	switch {
	case problem != "":
		return ses.answer(problem)
	case !ok1 || !ok2:
		return ses.answer(badDeleteFlag)
	}
	r := removal{mark: fs.has('I'), cas: cas}
	if ttl != nil {
		at := expiry(int(*ttl))
		r.expires = &at
	}
	ses.touch(key.key)
	v := ses.store.remove(key.key, r)
	if fs.has('q') && v == done {
		return nil
	}
	return ses.answer(fs.show([...]string{done: "HD", notFound: "NF", exists: "EX"}[v], key, nil))
}

func metaNoop(ses *session, _ []string) error { return ses.answer("MN") }

// parseKey splits a meta command's words into the key and, after the fixed words, its flags. The limit of a key's length is about
// what was sent: of a key in base64 too.
func parseKey(words []string, fixed int, allowed string, say wording) (key metaKey, fs flags, problem string) {
	switch {
	case len(words) == 0:
		return key, nil, "ERROR"
	case len(words) < fixed || len(words[0]) > maxKey:
		return key, nil, badFormat
	}
	key = metaKey{key: words[0], sent: words[0]}
	if fs, problem = parseFlags(words[fixed:], allowed, say.invalid, say.duplicate); problem != "" || !fs.has('b') {
		return key, fs, problem
	}
	decoded, err := base64.StdEncoding.DecodeString(key.sent)
	if err != nil || len(decoded) == 0 {
		return key, nil, say.undecodable
	}
	key.key = string(decoded)
	return key, fs, ""
}
