package changelog

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// packed is what a producer of the client library makes of a batch.
func packed(t testing.TB, content []byte) []byte {
	c, err := kgo.DefaultCompressor(kgo.Lz4Compression())
	if err != nil {
		t.Fatal(err)
	}
	out, codec := c.Compress(&bytes.Buffer{}, content)
	if codec != kgo.CodecLz4 {
		t.Fatalf("codec %d", codec)
	}
	return bytes.Clone(out)
}

// packedByUs is what a producer of ours makes of it.
func packedByUs(t testing.TB, content []byte) []byte {
	out, codec := packer{}.Compress(&bytes.Buffer{}, content)
	if codec != kgo.CodecLz4 {
		t.Fatalf("codec %d", codec)
	}
	return out
}

func framed(t testing.TB, content []byte, options ...lz4.Option) []byte {
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	if err := w.Apply(options...); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// noise does not compress.
func noise(n int) []byte {
	r, out := rand.NewChaCha8([32]byte{1}), make([]byte, n)
	r.Read(out)
	return out
}

func TestUnpack(t *testing.T) {
	record := []byte(strings.Repeat(`{"before":null,"after":{"id":4711,"email":"ann@x.test"}}`, 3))
	large := []byte(strings.Repeat("user:1 ", 2<<20))
	for name, c := range map[string]struct {
		packed, want []byte
		ours         bool
	}{
		"a record":                    {packed(t, record), record, true},
		"a record, by us":             {packedByUs(t, record), record, true},
		"nothing, by us":              {packedByUs(t, nil), nil, true},
		"noise, by us":                {packedByUs(t, noise(200_000)), noise(200_000), true},
		"many blocks, by us":          {packedByUs(t, large), large, true},
		"nothing":                     {framed(t, nil), nil, true},
		"what does not compress":      {packed(t, noise(300)), noise(300), true},
		"blocks of 4 MiB":             {packed(t, large), large, true},
		"blocks of 64 KiB, as Java's": {framed(t, large, lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)), large, true},
		"one of zeroes":               {packed(t, make([]byte, 4<<20)), make([]byte, 4<<20), true},
		"blocks with checksums":       {framed(t, record, lz4.BlockChecksumOption(true)), record, false},
		"with its size":               {framed(t, record, lz4.SizeOption(uint64(len(record)))), record, false},
		"two frames":                  {append(packed(t, record), packed(t, large)...), append(bytes.Clone(record), large...), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := unpackLZ4(c.packed)
			if ok != c.ours || ok && !bytes.Equal(got, c.want) {
				t.Errorf("%d bytes, ok %v; want %d, %v", len(got), ok, len(c.want), c.ours)
			}
			if got, err := (unpacker{t.Context()}).Decompress(c.packed, kgo.CodecLz4); err != nil || !bytes.Equal(got, c.want) {
				t.Errorf("%d bytes, error %v; want %d", len(got), err, len(c.want))
			}
		})
	}
}

// What was unpacked is the caller's: the next batch does not lie in the same memory.
func TestUnpackedStays(t *testing.T) {
	var all [][]byte
	for n := range 20 {
		got, ok := unpackLZ4(packed(t, []byte(fmt.Sprint("record ", n))))
		if !ok {
			t.Fatal(n)
		}
		all = append(all, got)
	}
	for n, got := range all {
		if string(got) != fmt.Sprint("record ", n) {
			t.Errorf("%d: %q", n, got)
		}
	}
}

// Who is told to end unpacks nothing more.
func TestUnpackEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (unpacker{ctx}).Decompress(packed(t, []byte("record")), kgo.CodecLz4); err != context.Canceled {
		t.Error(err)
	}
}

// Whatever is read, what we unpack is what the library does, or what it refuses for a checksum.
func FuzzUnpackLZ4(f *testing.F) {
	for _, content := range [][]byte{nil, []byte("record"), bytes.Repeat([]byte("user:1 "), 100), noise(100)} {
		f.Add(packed(f, content))
		f.Add(framed(f, content, lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, ok := unpackLZ4(src)
		if !ok {
			return
		}
		want, err := decompressor.Decompress(src, kgo.CodecLz4)
		if err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// A topic whose producer sends each change as it comes has batches of one record.
func BenchmarkUnpackOneRecord(b *testing.B) {
	src := packed(b, []byte(strings.Repeat(`{"before":null,"after":{"id":4711,"email":"ann@x.test"}}`, 12)))
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := unpackLZ4(src); !ok {
				b.Fatal("it is the library's")
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decompressor.Decompress(src, kgo.CodecLz4); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The largest batch of a backlog: rows of one table, one after another.
func BenchmarkPack(b *testing.B) {
	var rows bytes.Buffer
	for id := 0; rows.Len() < 900<<10; id++ {
		fmt.Fprintf(&rows, `{"before":null,"after":{"id":%d,"email":"Somebody.%d@example.test","name":"Some Body, of Somewhere"},"source":{"connector":"mysql","name":"shop","ts_ms":%d,"db":"shop","table":"users","pos":%d},"op":"c"}`, id, id*7919, 1_700_000_000_000+id/3, 1000+id*231)
	}
	library, err := kgo.DefaultCompressor(kgo.Lz4Compression())
	if err != nil {
		b.Fatal(err)
	}
	for name, c := range map[string]kgo.Compressor{"ours": packer{}, "library": library} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(rows.Len()))
			b.ReportAllocs()
			var dst bytes.Buffer
			n := 0
			for b.Loop() {
				dst.Reset()
				out, _ := c.Compress(&dst, rows.Bytes())
				n = len(out)
			}
			b.ReportMetric(float64(rows.Len())/float64(n), "ratio")
		})
	}
}
