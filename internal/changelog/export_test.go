package changelog

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
)

// DecodePosition is the decoder of position records, for its fuzz test.
func DecodePosition(data []byte) (cdc.Position, error) {
	r, err := decodePosition(data)
	return r.Position, err
}

// OnUnpack has f called before each batch that is decompressed, until the returned function is called.
func OnUnpack(f func()) (restore func()) {
	was := decompressor
	decompressor = onUnpack{was, f}
	return func() { decompressor = was }
}

type onUnpack struct {
	kgo.Decompressor
	f func()
}

func (u onUnpack) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	u.f()
	return u.Decompressor.Decompress(src, codec)
}
