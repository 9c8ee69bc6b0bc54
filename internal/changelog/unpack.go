package changelog

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// decompressor keeps what it needs for the next batch; it is safe for concurrent use.
var decompressor = kgo.DefaultDecompressor()

// unpacker decompresses until ctx ends: one answer of a broker may hold thousands of batches, or a few that are large, and who is told
// to end does not unpack the rest.
type unpacker struct{ ctx context.Context }

// Decompress implements kgo.Decompressor.
func (u unpacker) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if err := u.ctx.Err(); err != nil {
		return nil, err
	}
	if codec == kgo.CodecLz4 {
		if out, ok := unpackLZ4(src); ok {
			return out, nil
		}
	}
	return decompressor.Decompress(src, codec)
}

// A frame as https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md has it: the magic number, the flags, the greatest size of a block, a checksum of those; then
// blocks, each behind its size; then a size of 0. Numbers are little-endian.
const (
	lz4Magic  = 0x184D2204
	lz4Header = 7

	// The flags: version 1, and of what may be, what is here.
	lz4Version  = 0b11_000000
	lz4IsOne    = 0b01_000000
	lz4Single   = 0b00_100000 // blocks do not refer to those before them
	lz4Checks   = 0b00_010000 // each block has a checksum behind it
	lz4Size     = 0b00_001000 // the header says how long the content is
	lz4Checksum = 0b00_000100 // a checksum follows the end
	lz4Dict     = 0b00_000001

	lz4Plain = 1 << 31 // in a block's size: it is not compressed

	mostBlocks = 64 << 20 // bytes of content that are unpacked here
	keptRoom   = 4 << 20
)

var lz4Room = sync.Pool{New: func() any { return new([]byte) }}

// unpackLZ4 unpacks a frame as Kafka's producers write them. What has another form, or a fault, is not ok: it is the library's.
//
// The library's reader takes memory for the greatest block that the frame might have, most often 4 MiB, which costs more than
// unpacking where a batch is one record. A checksum is passed over: the broker's batch has one, which was looked at.
func unpackLZ4(src []byte) (out []byte, ok bool) {
	if len(src) < lz4Header || binary.LittleEndian.Uint32(src) != lz4Magic {
		return nil, false
	}
	flags := src[4]
	if flags&lz4Version != lz4IsOne || flags&lz4Single == 0 || flags&(lz4Checks|lz4Size|lz4Dict) != 0 {
		return nil, false
	}
	room := lz4Room.Get().(*[]byte)
	defer func() {
		if cap(*room) <= keptRoom {
			lz4Room.Put(room)
		}
	}()
	all := (*room)[:0]
	for src = src[lz4Header:]; ; {
		if len(src) < 4 {
			return nil, false
		}
		size := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if size == 0 {
			break
		}
		n := int(size &^ lz4Plain)
		if n > len(src) || len(all) > mostBlocks {
			return nil, false
		}
		if size&lz4Plain != 0 {
			all = append(all, src[:n]...)
		} else if all, ok = appendBlock(all, src[:n]); !ok {
			return nil, false
		}
		src = src[n:]
	}
	*room = all
	end := 0
	if flags&lz4Checksum != 0 {
		end = 4
	}
	if len(src) != end { // another frame follows
		return nil, false
	}
	return slices.Clone(all), true
}

// appendBlock appends what a block unpacks to, of which only the trial says how long it is.
func appendBlock(dst, block []byte) ([]byte, bool) {
	const most = 4 << 20 // of a block
	for room := max(4*len(block), cap(dst)-len(dst)); ; room *= 2 {
		room = min(room, most)
		dst = slices.Grow(dst, room)
		n, err := lz4.UncompressBlock(block, dst[len(dst):len(dst)+room])
		if err == nil {
			return dst[:len(dst)+n], true
		}
		if room == most {
			return nil, false
		}
	}
}
