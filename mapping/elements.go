package mapping

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"invalidator/cdc"
)

// elements takes a list apart: an array as Postgres or JSON writes it, or a text whose elements stand apart by the filter's
// argument. An empty list has none. What it cannot take gives a detail, beside the elements that it could.
func elements(s string, f *filter) (list []cdc.Value, detail string) {
	switch {
	case len(f.args) > 0:
		if s == "" {
			return nil, ""
		}
		if strings.Count(s, f.args[0].text) >= maxElements {
			return nil, detailElements
		}
		for e := range strings.SplitSeq(s, f.args[0].text) {
			list = append(list, textValue(e))
		}
		return list, ""
	case strings.HasPrefix(s, "["):
		if _, array, ok := strings.Cut(s, "]={"); ok && isBounds(s[:len(s)-len(array)-len("={")]) {
			return arrayElements("{" + array)
		}
		return jsonElements(s)
	case strings.HasPrefix(s, "{"):
		return arrayElements(s)
	}
	return nil, detailNoList
}

// isBounds reports whether s is what Postgres writes before an array that does not begin at 1: [0:2][-1:1].
func isBounds(s string) bool { return strings.Trim(s, "[]:-0123456789") == "" }

func jsonElements(s string) (list []cdc.Value, detail string) {
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(s), &raw); err != nil || !utf8.ValidString(s) {
		return nil, detailDoc
	}
	if len(raw) > maxElements {
		return nil, detailElements
	}
	for _, r := range raw {
		text, kind, trouble := appendJSON(nil, r)
		switch {
		case kind == cdc.JSON:
			detail = detailNested
		case trouble != "":
			detail = trouble
		default:
			list = append(list, cdc.Value{Kind: kind, S: string(text)})
		}
	}
	return list, detail
}

// arrayElements reads {a,"b \"c\"",NULL,{d}}: of an array of several dimensions the elements of all.
func arrayElements(s string) (list []cdc.Value, detail string) {
	depth := 0
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '{':
			depth++
			i++
		case c == '}':
			if depth--; depth < 0 {
				return nil, detailNoList
			}
			i++
		case depth == 0:
			return nil, detailNoList
		case c == ',':
			i++
		default:
			v, n := arrayElement(s[i:])
			if n == 0 {
				return nil, detailNoList
			}
			if list = append(list, v); len(list) > maxElements {
				return nil, detailElements
			}
			i += n
		}
	}
	if depth != 0 {
		return nil, detailNoList
	}
	return list, ""
}

// arrayElement reads one element, quoted or not, and says how long it is; 0 where its quote does not end.
func arrayElement(s string) (v cdc.Value, n int) {
	var b strings.Builder
	quoted := s[0] == '"'
	if quoted {
		n = 1
	}
	for ; n < len(s); n++ {
		switch c := s[n]; {
		case c == '\\' && n+1 < len(s):
			n++
			b.WriteByte(s[n])
		case quoted && c == '"':
			return textValue(b.String()), n + 1
		case !quoted && (c == ',' || c == '}' || c == '{'):
			if strings.EqualFold(s[:n], "NULL") {
				return cdc.Value{Kind: cdc.Null}, n
			}
			return textValue(b.String()), n
		default:
			b.WriteByte(c)
		}
	}
	return v, 0
}
