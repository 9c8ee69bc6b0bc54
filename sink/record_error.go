package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// RecordError says what is wrong with a ring record or a hot-key file, where, and what to do.
type RecordError struct {
	Source  string // "" where the record was not read from anywhere
	Line    int    // from 1; 0: not known
	Shard   string // the shard's id, where it is about one
	Field   string // shards[3].primary.addr; "" for the whole
	Problem string
	Hint    string

	pointer jsontext.Pointer // the same place as Field, for finding Line
}

// Error is one line: source:line: shard "id": field: problem (hint).
func (e *RecordError) Error() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.Source)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Shard != "" {
		fmt.Fprintf(&b, "shard %q: ", e.Shard)
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Problem)
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// decodeStrict refuses unknown and doubled fields, invalid UTF-8 and text after the value.
func decodeStrict(data []byte, v any) error {
	return json.Unmarshal(data, v, json.RejectUnknownMembers(true))
}

// jsonError turns the JSON library's error into ours.
func jsonError(source string, data []byte, err error) *RecordError {
	e := &RecordError{Source: source}
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntactic):
		e.at(syntactic.JSONPointer)
		e.Line = lineAt(data, syntactic.ByteOffset)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			e.Problem, e.Hint = "the field is there twice", "remove one of them"
		case errors.Is(err, io.ErrUnexpectedEOF):
			e.Problem, e.Hint = "the text ends in the middle of the JSON", "write the file whole, under another name, and rename it"
		default:
			e.Problem, e.Hint = "not valid JSON: "+syntactic.Err.Error(), "correct the JSON"
		}
	case errors.As(err, &semantic):
		e.at(semantic.JSONPointer)
		e.Line = lineAt(data, semantic.ByteOffset)
		switch {
		case errors.Is(err, json.ErrUnknownName):
			e.Problem, e.Hint = "unknown field", "correct its name or remove it"
		case semantic.Err != nil:
			e.Problem, e.Hint = fmt.Sprintf("cannot read %s: %v", kindName(semantic.JSONKind), semantic.Err), wanted(semantic.GoType)
		default:
			e.Problem, e.Hint = fmt.Sprintf("%s does not belong here", kindName(semantic.JSONKind)), wanted(semantic.GoType)
		}
	default:
		e.Problem = err.Error()
	}
	return e
}

func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "a list"
	case jsontext.KindString:
		return "a text"
	case jsontext.KindNumber:
		return "a number"
	}
	return k.String() // null, true, false
}

// wanted is the hint for a value of the wrong type.
func wanted(t reflect.Type) string {
	switch {
	case t == nil:
		return "correct the value"
	case t == reflect.TypeFor[time.Time]():
		return "write a time such as 2026-11-30T10:00:00Z"
	case t.Kind() == reflect.Slice:
		return "write a list"
	case t.Kind() == reflect.String:
		return "write text in quotes"
	case t.Kind() == reflect.Bool:
		return "write true or false"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return "write a whole number"
	}
	return "write an object"
}

// at sets the place that pointer names.
func (e *RecordError) at(pointer jsontext.Pointer) {
	e.pointer = pointer
	var b strings.Builder
	for token := range pointer.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if quoted := strconv.Quote(token); len(quoted) > len(token)+2 { // keep it on one line
			token = quoted
		}
		b.WriteString(token)
	}
	e.Field = b.String()
}

// lineOf finds the line of the value that pointer names, or of the nearest value around it that is there.
func lineOf(data []byte, pointer jsontext.Pointer) int {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	line, depth := 1, 0
	for {
		if _, err := dec.ReadToken(); err != nil {
			return line
		}
		if at := dec.StackPointer(); len(at) > depth && at.Contains(pointer) {
			line, depth = lineAt(data, dec.InputOffset()), len(at)
		}
	}
}

// lineAt counts from 1.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n"))
}
