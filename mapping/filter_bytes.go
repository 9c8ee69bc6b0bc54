package mapping

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"invalidator/cdc"
)

func toHex(dst, src []byte) []byte { return hex.AppendEncode(dst, src) }

func base64Standard(dst, src []byte) []byte { return base64.StdEncoding.AppendEncode(dst, src) }

func base64URL(dst, src []byte) []byte { return base64.RawURLEncoding.AppendEncode(dst, src) }

func md5Hex(dst, src []byte) []byte {
	sum := md5.Sum(src)
	return hex.AppendEncode(dst, sum[:])
}

func sha1Hex(dst, src []byte) []byte {
	sum := sha1.Sum(src)
	return hex.AppendEncode(dst, sum[:])
}

func sha256Hex(dst, src []byte) []byte {
	sum := sha256.Sum256(src)
	return hex.AppendEncode(dst, sum[:])
}

// hashed keeps the first digits of a hash, or all.
func hashed(sum func(dst, src []byte) []byte) func([]argument) (step, *fault) {
	return func(args []argument) (step, *fault) {
		if len(args) == 0 {
			return bytesStep(sum), nil
		}
		digits := int(args[0].number)
		return bytesStep(func(dst, src []byte) []byte { return sum(dst, src)[:len(dst)+digits] }), nil
	}
}

const (
	uuidLen     = 16
	detailUUID  = "uuid takes 16 bytes, and these are fewer or more (where the column is a binary(16), declare it: some writers cut zeros off)"
	detailNoHex = "uuid takes 32 hexadecimal digits, with hyphens or without, and this is another text (where the column is a binary(16), declare it)"
)

// uuid writes 16 bytes, or a UUID in any case with or without hyphens, in the one way: 8-4-4-4-12 in lower case.
func uuid(dst, src []byte, kind cdc.Kind) ([]byte, cdc.Kind, string) {
	var raw [uuidLen]byte
	switch {
	case kind != cdc.Bytes && kind != cdc.Bytea:
		if !parseUUID(&raw, src) {
			return dst, cdc.Text, detailNoHex
		}
	case len(src) != uuidLen:
		return dst, cdc.Text, detailUUID
	default:
		copy(raw[:], src)
	}
	for i, c := range raw {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, []byte{c})
	}
	return dst, cdc.Text, ""
}

// parseUUID reads 32 hexadecimal digits, with all four hyphens or none.
func parseUUID(raw *[uuidLen]byte, src []byte) bool {
	var digits [2 * uuidLen]byte
	switch {
	case len(src) == 36 && src[8] == '-' && src[13] == '-' && src[18] == '-' && src[23] == '-':
		b := append(append(append(append(digits[:0], src[:8]...), src[9:13]...), src[14:18]...), src[19:23]...)
		copy(digits[len(b):], src[24:])
	case len(src) == len(digits):
		copy(digits[:], src)
	default:
		return false
	}
	_, err := hex.Decode(raw[:], digits[:])
	return err == nil
}
