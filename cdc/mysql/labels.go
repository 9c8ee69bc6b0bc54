package mysql

import "strings"

// decodeLabels takes labels as the log has them, in the column's charset.
func (c *column) decodeLabels(raw []string) {
	cs := charsets[c.charset]
	if c.charset == binaryCharset {
		cs = charsets["utf8mb4"]
	}
	if cs == nil {
		c.labelErr = "its label is in charset " + c.charset + ", which cannot be read"
		return
	}
	for _, l := range raw {
		text, ok := cs.text(l)
		if !ok {
			c.labels, c.labelErr = nil, "a label is no text in charset "+c.charset
			return
		}
		c.labels = append(c.labels, text)
	}
}

// parseLabels reads enum('a','it”s') as information_schema writes it: in UTF-8, with a few characters behind a backslash. Nil
// is none that could be read.
func parseLabels(columnType string) (labels []string) {
	_, rest, _ := strings.Cut(columnType, "(")
	for strings.HasPrefix(rest, "'") {
		label, after, ok := cutLabel(rest[1:])
		if !ok {
			return nil
		}
		labels = append(labels, label)
		rest = strings.TrimPrefix(after, ",")
	}
	return labels
}

// cutLabel reads up to the closing quote.
func cutLabel(s string) (label, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(unescape(s[i]))
		case s[i] == '\'' && strings.HasPrefix(s[i+1:], "'"):
			i++
			b.WriteByte('\'')
		case s[i] == '\'':
			return b.String(), s[i+1:], true
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// unescape is what a character behind a backslash stands for.
func unescape(c byte) byte {
	switch c {
	case '0':
		return 0
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	}
	return c
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `'`, `''`)

// labelList writes labels as the catalogue has them: quotes and backslashes doubled.
func labelList(labels []string) string {
	quoted := make([]string, len(labels))
	for i, l := range labels {
		quoted[i] = "'" + labelEscapes.Replace(l) + "'"
	}
	return "(" + strings.Join(quoted, ",") + ")"
}
