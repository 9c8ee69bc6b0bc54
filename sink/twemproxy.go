package sink

import (
	"crypto/md5"
	"encoding/binary"
	"hash/crc32"
)

// keyHashes are the hashes of twemproxy (its `hash`) and libmemcached that golden vectors of theirs have shown to be right. Where
// signed is called, a byte of 0x80 and above counts as a large number: their char is signed.
var keyHashes = map[string]func(key string) uint32{
	"one_at_a_time": hashOneAtATime,
	"md5":           hashMD5,
	"crc16":         hashCRC16,
	"crc32":         func(key string) uint32 { return crc32.ChecksumIEEE([]byte(key)) >> 16 & 0x7fff },
	"crc32a":        func(key string) uint32 { return crc32.ChecksumIEEE([]byte(key)) },
	"fnv1_64":       hashFNV1x64,
	"fnv1a_64":      func(key string) uint32 { return fnv1a(key, 0x84222325, 0x1b3) }, // its constants are cut to 32 bits
	"fnv1_32":       func(key string) uint32 { return fnv1(key, 2166136261, 16777619) },
	"fnv1a_32":      func(key string) uint32 { return fnv1a(key, 2166136261, 16777619) },
}

// hashMD5 is the first 4 bytes of the key's MD5, little-endian: libmemcached's too.
func hashMD5(key string) uint32 {
	sum := md5.Sum([]byte(key))
	return binary.LittleEndian.Uint32(sum[:])
}

// signed is a byte as a C compiler of a machine whose char is signed widens it.
func signed(b byte) uint32 { return uint32(int32(int8(b))) }

func fnv1(key string, init, prime uint32) uint32 {
	h := init
	for i := range len(key) {
		h = h*prime ^ signed(key[i])
	}
	return h
}

func fnv1a(key string, init, prime uint32) uint32 {
	h := init
	for i := range len(key) {
		h = (h ^ signed(key[i])) * prime
	}
	return h
}

// hashFNV1x64 counts in 64 bits and is cut at the end.
func hashFNV1x64(key string) uint32 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = h*0x100000001b3 ^ uint64(int64(int8(key[i])))
	}
	return uint32(h)
}

func hashOneAtATime(key string) uint32 {
	var h uint32
	for i := range len(key) {
		h += signed(key[i])
		h += h << 10
		h ^= h >> 6
	}
	h += h << 3
	h ^= h >> 11
	h += h << 15
	return h
}

// hashCRC16 is CRC-16/XMODEM, kept in 32 bits: what is shifted out stays above.
func hashCRC16(key string) uint32 {
	var crc uint32
	for i := range len(key) {
		crc = crc<<8 ^ uint32(crc16Table[(crc>>8^uint32(key[i]))&0xff])
	}
	return crc
}

var crc16Table = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()
