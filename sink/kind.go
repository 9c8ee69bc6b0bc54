package sink

import (
	"cmp"
	"crypto/md5"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
)

// defaultPort is left out of a server's label where a client knows it as memcached's.
const defaultPort = "11211"

// layout is how clients hash a key: what a record says besides its shards. Keys that lie alike under two records with one layout have
// one place on both rings.
type layout struct {
	kind, prefix, hash, tag string
	servers                 int // of modulo
}

func layoutOf(r *Record, shards []Shard) layout {
	l := layout{kind: r.Kind, prefix: r.KeyPrefix, hash: r.hash(), tag: r.HashTag}
	if r.Kind == KindModulo {
		l.servers = len(shards)
	}
	return l
}

// hash is the name of the function by which keys are hashed; "" where the kind has but one.
func (r *Record) hash() string {
	switch {
	case r.Hash != "":
		return r.Hash
	case r.Kind == KindKetama:
		return "one_at_a_time"
	case r.Kind == KindTwemproxy:
		return "fnv1a_64"
	}
	return ""
}

// knownHashes are those that a record of the kind may name, of which we have golden vectors.
func knownHashes(kind string) []string {
	switch kind {
	case KindKetama:
		return []string{"md5", "one_at_a_time"}
	case KindTwemproxy:
		return slices.Sorted(maps.Keys(keyHashes))
	}
	return nil
}

// place is where a wire key lies on every ring of the layout.
func (l layout) place(wire string) int64 {
	switch l.kind {
	case KindKetama, KindTwemproxy:
		return int64(keyHashes[l.hash](tagged(wire, l.tag)))
	case KindKetamaWeighted:
		return int64(hashMD5(wire))
	case KindModulo:
		return int64(crc32.ChecksumIEEE([]byte(wire)) % uint32(l.servers))
	}
	return Hash(wire)
}

// placeBytes is place; on a ring of kind points160 it makes no string of the key.
func (l layout) placeBytes(wire []byte) int64 {
	if l.kind == KindPoints160 {
		return hashBytes(wire)
	}
	return l.place(string(wire))
}

// tagged is the part of a key that twemproxy hashes: what stands between the first two characters of tag, unless that is nothing.
func tagged(key, tag string) string {
	if tag == "" {
		return key
	}
	_, after, found := strings.Cut(key, tag[:1])
	if !found {
		return key
	}
	if part, _, found := strings.Cut(after, tag[1:]); found && part != "" {
		return part
	}
	return key
}

// ringFor places the shards as clients of the kind do, with a hash as Record.hash names it.
func ringFor(kind, hash string, shards []Shard) *Ring {
	switch kind {
	case KindKetama:
		return plainKetama(shards, keyHashes[hash])
	case KindKetamaWeighted, KindTwemproxy:
		return weightedKetama(shards)
	case KindModulo:
		r := &Ring{}
		for i := range shards {
			r.hashes, r.owners = append(r.hashes, int64(i)), append(r.owners, int32(i))
		}
		return r
	}
	return NewRing(shards)
}

// Points of a server on libmemcached's rings: MEMCACHED_POINTS_PER_SERVER, and _KETAMA where weights count, where it is on the average.
const (
	plainPoints    = 100
	weightedPoints = 160
)

// plainKetama is libmemcached's update_continuum without weights.
func plainKetama(shards []Shard, hash func(string) uint32) *Ring {
	var points []point
	for i, s := range shards {
		for n := range plainPoints {
			points = append(points, point{int64(hash(s.label() + "-" + strconv.Itoa(n))), int32(i)})
		}
	}
	return ringOf(points, inOrder)
}

// weightedKetama is libmemcached's update_continuum with weights, and twemproxy's ketama_update. Four points come of each MD5. The
// arithmetic is that of their floats.
func weightedKetama(shards []Shard) *Ring {
	total := 0
	for _, s := range shards {
		total += s.Weight
	}
	var points []point
	for i, s := range shards {
		share := float32(s.Weight) / float32(total)
		quarter := float32(share*weightedPoints/4*float32(len(shards))) + 0.0000000001
		for n := range int(math.Floor(float64(quarter))) {
			sum := md5.Sum([]byte(s.label() + "-" + strconv.Itoa(n)))
			for at := 0; at < md5.Size; at += 4 {
				points = append(points, point{int64(binary.LittleEndian.Uint32(sum[at:])), int32(i)})
			}
		}
	}
	return ringOf(points, inOrder)
}

// inOrder has points of one hash in the order of their servers.
func inOrder(a, b point) int { return cmp.Compare(a.shard, b.shard) }

// label is a server's name in the text of its points: host:port, the port left out where it is memcached's own, or the name that twemproxy's
// configuration gives.
func (s *Shard) label() string {
	if s.Name != "" {
		return s.Name
	}
	server := s.Server
	if server == "" {
		server = s.Primary.Addr
	}
	host, port, err := net.SplitHostPort(server)
	switch {
	case err != nil: // it was checked
		return server
	case port == defaultPort:
		return host
	}
	return host + ":" + port
}

// shape is equal for lists of shards that give one ring, shard by shard.
func shape(kind string, shards []Shard) string {
	var b strings.Builder
	b.WriteString(kind)
	for i := range shards {
		s := &shards[i]
		switch kind {
		case KindModulo:
		case KindPoints160:
			b.WriteString("\n" + s.ID + " " + strconv.Itoa(s.Weight))
		default:
			b.WriteString("\n" + s.label() + " " + strconv.Itoa(s.Weight))
		}
	}
	return b.String()
}
