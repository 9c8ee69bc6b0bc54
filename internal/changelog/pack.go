package changelog

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// packer compresses batches with lz4, in blocks of 64 KiB as Kafka's own clients write them, and without a checksum of the content, since the batch has one.
// The library's writer takes 4 MiB for a block, copies what it is given there, and reads it once more for the checksum.
type packer struct{}

// lz4Head is how each frame begins: the magic number, single blocks, of 64 KiB at most, and the checksum of these two bytes.
var lz4Head = [lz4Header]byte{0x04, 0x22, 0x4D, 0x18, lz4IsOne | lz4Single, 0x40, 0x82}

const lz4Block = 64 << 10

var lz4Compressors = sync.Pool{New: func() any { return new(lz4.Compressor) }}

// Compress implements kgo.Compressor.
func (packer) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	blocks := len(src)/lz4Block + 1
	dst.Grow(lz4Header + blocks*(4+lz4.CompressBlockBound(min(len(src), lz4Block))) + 4)
	out := append(dst.AvailableBuffer(), lz4Head[:]...)
	c := lz4Compressors.Get().(*lz4.Compressor)
	defer lz4Compressors.Put(c)
	for len(src) > 0 {
		block := src[:min(len(src), lz4Block)]
		src = src[len(block):]
		at := len(out) + 4
		n, err := c.CompressBlock(block, out[at:at+lz4.CompressBlockBound(len(block))])
		if err != nil {
			return nil, kgo.CodecError
		}
		size := uint32(n)
		if n == 0 || n >= len(block) { // it does not compress
			size = uint32(len(block)) | lz4Plain
			n = copy(out[at:at+len(block)], block)
		}
		out = binary.LittleEndian.AppendUint32(out, size)[:at+n]
	}
	return binary.LittleEndian.AppendUint32(out, 0), kgo.CodecLz4
}
