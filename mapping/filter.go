package mapping

import (
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"invalidator/cdc"
)

// filter is one step between a column and the key, with its arguments. It is immutable.
type filter struct {
	*filterType
	args []argument
	at   int  // the byte of the template's text where its name begins
	step step // nil for default and elements, which are more than a step from text to text
}

// filterType is one row of the table of filters.
type filterType struct {
	name   string
	params []param
	usage  string // as a team would write it, for hints
	takes  types
	wants  string // takes, in words
	gives  types  // 0: what it took, or text
	raw    bool   // takes the bytes of a bytea, where the others take its text
	bind   func(args []argument) (step, *fault)
}

// step appends to dst what it makes of src, which is of that kind. The kind that it gives may be Null, where there is no such
// value, and Ambiguous, where there are several, apart by separator, each of which is rendered. A trouble says why it cannot
// take src, and is empty where it can.
type step func(dst, src []byte, kind cdc.Kind) (out []byte, gives cdc.Kind, trouble string)

// separator stands between the texts of an Ambiguous value, as in cdc.
const separator = "\x00"

func filterNamed(name string) *filterType {
	if i := slices.IndexFunc(filters, func(f *filterType) bool { return f.name == name }); i >= 0 {
		return filters[i]
	}
	return nil
}

func filterNames() []string {
	names := make([]string, len(filters))
	for i, f := range filters {
		names[i] = f.name
	}
	return names
}

// refuse says why a value gives no text through fs, whatever its text is; an empty reason where it may.
func refuse(v cdc.Value, fs []*filter) (SkipReason, string) {
	switch v.Kind {
	case cdc.Absent:
		return SkipAbsent, detailAbsent
	case cdc.Unclear:
		return SkipUnclear, v.Why
	case cdc.Null:
		if !slices.ContainsFunc(fs, (*filter).isDefault) {
			return SkipNull, detailNull
		}
	case cdc.Float:
		return SkipType, detailFloat
	}
	return "", ""
}

func (f *filter) isDefault() bool { return f.filterType == filterDefault }

// pipe is through, or steps.
type pipe func(buf *[2][]byte, dst []byte, v cdc.Value, fs []*filter) (out []byte, kind cdc.Kind, reason SkipReason, detail string)

// through appends to dst the text that fs, of which none is elements, make of v. As in SQL, what is NULL stays so until a
// default gives it a text. The kind is Ambiguous where v, or a filter, left several texts open: dst has them apart by separator.
// Where there is no text, reason and detail say why.
func through(buf *[2][]byte, dst []byte, v cdc.Value, fs []*filter) (out []byte, kind cdc.Kind, reason SkipReason, detail string) {
	out, kind, reason, detail = steps(buf, dst, v, fs)
	if kind == cdc.JSON && reason == "" {
		return dst, kind, SkipType, detailJSON
	}
	return out, kind, reason, detail
}

// steps is through, but for a document, which elements takes.
//
// The last filter writes into dst; those before it take turns with the two buffers.
func steps(buf *[2][]byte, dst []byte, v cdc.Value, fs []*filter) (out []byte, kind cdc.Kind, reason SkipReason, detail string) {
	if reason, detail = refuse(v, fs); reason != "" {
		return dst, v.Kind, reason, detail
	}
	if v.Kind == cdc.Ambiguous {
		return severally(dst, []byte(v.S), fs)
	}
	start, from := len(dst), 0
	if kind = v.Kind; len(fs) > 0 {
		buf[0] = append(buf[0][:0], v.S...)
	} else {
		dst = append(dst, v.S...)
	}
	for i, f := range fs {
		last, src := i == len(fs)-1, buf[from]
		to := dst
		if !last {
			to = buf[1-from][:0]
		}
		var trouble string
		if to, kind, trouble = f.apply(to, src, kind); trouble != "" {
			return dst[:start], kind, SkipType, trouble
		}
		if last {
			dst = to
			break
		}
		buf[1-from] = to
		from = 1 - from
		if kind == cdc.Ambiguous {
			return severally(dst, to, fs[i+1:])
		}
	}
	switch kind {
	case cdc.Null:
		return dst[:start], kind, SkipNull, detailNothing
	case cdc.Bytea:
		return appendBytea(dst[:start], v.S), cdc.Text, "", ""
	}
	return dst, kind, "", ""
}

// severally puts each of several texts through fs.
func severally(dst, texts []byte, fs []*filter) (out []byte, kind cdc.Kind, reason SkipReason, detail string) {
	start := len(dst)
	for i, t := range strings.Split(string(texts), separator) {
		if i > 0 {
			dst = append(dst, separator...)
		}
		var buf [2][]byte
		if dst, _, reason, detail = through(&buf, dst, cdc.Value{Kind: cdc.Text, S: t}, fs); reason != "" {
			return dst[:start], cdc.Ambiguous, reason, detail
		}
	}
	return dst, cdc.Ambiguous, "", ""
}

// apply is one filter of a chain.
func (f *filter) apply(dst, src []byte, kind cdc.Kind) ([]byte, cdc.Kind, string) {
	switch {
	case f.isDefault() && kind == cdc.Null:
		return append(dst, f.args[0].text...), cdc.Text, ""
	case f.isDefault(), kind == cdc.Null:
		return append(dst, src...), kind, ""
	case f.takes&typesOfKind(kind) == 0:
		return dst, kind, f.name + " takes " + f.wants + ", and this is " + nameOfKind(kind)
	case kind == cdc.Bytea && !f.raw:
		src = appendBytea(nil, string(src))
	}
	return f.step(dst, src, kind)
}

// appendBytea appends what Postgres shows of bytes.
func appendBytea(dst []byte, raw string) []byte {
	return hex.AppendEncode(append(dst, `\x`...), []byte(raw))
}

// textStep is a step that gives text, of text in UTF-8: other bytes would come out as U+FFFD, another key.
func textStep(f func(dst, src []byte) []byte) step {
	return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) {
		if !utf8.Valid(src) {
			return dst, cdc.Text, detailText
		}
		return f(dst, src), cdc.Text, ""
	}
}

// bytesStep is a step that gives text, of any bytes.
func bytesStep(f func(dst, src []byte) []byte) step {
	return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) { return f(dst, src), cdc.Text, "" }
}

// plain binds a filter without arguments.
func plain(s step) func([]argument) (step, *fault) {
	return func([]argument) (step, *fault) { return s, nil }
}
