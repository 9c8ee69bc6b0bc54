package mapping

import (
	"unicode"
	"unicode/utf8"

	"invalidator/cdc"
)

// otherCase maps letter by letter: those of ASCII from first on by their bit, and the others by f.
func otherCase(first byte, f func(rune) rune) func(dst, src []byte) []byte {
	return func(dst, src []byte) []byte {
		for len(src) > 0 {
			if c := src[0]; c < utf8.RuneSelf {
				if c-first < 26 {
					c ^= 'a' ^ 'A'
				}
				dst, src = append(dst, c), src[1:]
				continue
			}
			c, n := utf8.DecodeRune(src)
			dst = utf8.AppendRune(dst, f(c))
			src = src[n:]
		}
		return dst
	}
}

func trim(dst, src []byte) []byte {
	for len(src) > 0 {
		c, n := utf8.DecodeRune(src)
		if !unicode.IsSpace(c) {
			break
		}
		src = src[n:]
	}
	for len(src) > 0 {
		c, n := utf8.DecodeLastRune(src)
		if !unicode.IsSpace(c) {
			break
		}
		src = src[:len(src)-n]
	}
	return append(dst, src...)
}

// bindTruncate keeps the first characters, of which each is a Unicode code point.
func bindTruncate(args []argument) (step, *fault) {
	most := int(args[0].number)
	return textStep(func(dst, src []byte) []byte {
		end := 0
		for n := 0; n < most && end < len(src); n++ {
			_, size := utf8.DecodeRune(src[end:])
			end += size
		}
		return append(dst, src[:end]...)
	}), nil
}

// bindPad puts characters before a text until it has that many.
func bindPad(args []argument) (step, *fault) {
	width, fill := int(args[0].number), "0"
	if len(args) > 1 {
		fill = args[1].text
		if c, n := utf8.DecodeRuneInString(fill); n == 0 || n != len(fill) || c == utf8.RuneError || unfit(fill[0]) {
			return nil, args[1].fault("write pad(8, '0')", "pad takes one character that a key can hold, not %q", fill)
		}
	}
	return textStep(func(dst, src []byte) []byte {
		for range width - utf8.RuneCount(src) {
			dst = append(dst, fill...)
		}
		return append(dst, src...)
	}), nil
}

// urlencode escapes everything but the unreserved characters of RFC 3986.
func urlencode(dst, src []byte) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range src {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
			dst = append(dst, c)
		default:
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

func textValue(s string) cdc.Value { return cdc.Value{Kind: cdc.Text, S: s} }

// bindElements checks the text between the elements of a list; without one, elements takes arrays alone.
func bindElements(args []argument) (step, *fault) {
	if len(args) > 0 && args[0].text == "" {
		return nil, args[0].fault("write elements(',')", "nothing stands between the elements")
	}
	return nil, nil
}
