package sink

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxWeight bounds a shard's weight: a mistyped one would take the memory of every worker (160 points a unit).
	maxWeight = 1000
	// maxRingWeight bounds the sum over a ring: 1.6 million points, about 20 MB.
	maxRingWeight = 10_000
)

// Validate says what is wrong with a record that was not read by ParseRecord; its error is a *RecordError.
func (r *Record) Validate() error {
	if e := r.validate(); e != nil {
		return e
	}
	return nil
}

func (r *Record) validate() *RecordError {
	if r.Epoch < 1 {
		return fault("/epoch", fmt.Sprintf("the epoch is missing or below 1 (%d)", r.Epoch), "number records from 1 and raise it with each")
	}
	if e := r.validateKind(); e != nil {
		return e
	}
	if i := badKeyByte(r.KeyPrefix); i >= 0 {
		return fault("/key_prefix", fmt.Sprintf("byte %d is 0x%02x, a space or a control byte", i+1, r.KeyPrefix[i]),
			"write the prefix that the clients use")
	}
	if len(r.KeyPrefix) >= MaxKeyLen {
		return fault("/key_prefix", fmt.Sprintf("it is %d bytes long and leaves no room for a key", len(r.KeyPrefix)),
			fmt.Sprintf("prefix and key have %d bytes together", MaxKeyLen))
	}
	if e := validateShards("/shards", r.Kind, r.Shards); e != nil {
		return e
	}
	if r.Previous == nil {
		return nil
	}
	if p := r.Previous.Epoch; p < 1 || p >= r.Epoch {
		return fault("/previous/epoch", fmt.Sprintf("previous epoch %d is not between 1 and %d", p, r.Epoch-1),
			"write the epoch of the ring that was replaced")
	}
	return validateShards("/previous/shards", r.Kind, r.Previous.Shards)
}

// validateShards takes nodes that serve several shards: a node promoted for one and replica of another is normal.
func validateShards(at jsontext.Pointer, kind string, shards []Shard) *RecordError {
	if len(shards) == 0 {
		return fault(at, "there are no shards", "list at least one")
	}
	weight := 0
	seen, labels := make(map[string]int, len(shards)), make(map[string]int, len(shards))
	for i := range shards {
		s := &shards[i]
		here := at.AppendToken(strconv.Itoa(i))
		if first, twice := seen[s.ID]; twice {
			return about(s, fault(here.AppendToken("id"), fmt.Sprintf("the id is taken by the shard at index %d", first),
				"give every shard an id of its own"))
		}
		seen[s.ID] = i
		if e := validateShard(here, s); e != nil {
			return about(s, e)
		}
		if e := validateServer(here, kind, s, labels, i); e != nil {
			return about(s, e)
		}
		if weight += s.Weight; weight > maxRingWeight {
			return about(s, fault(here.AppendToken("weight"), fmt.Sprintf("the weights add up to more than %d", maxRingWeight),
				"divide all weights by the same number"))
		}
	}
	return nil
}

func validateShard(at jsontext.Pointer, s *Shard) *RecordError {
	if s.ID == "" {
		return fault(at.AppendToken("id"), "the id is missing or empty", "name the shard as the clients do")
	}
	if s.Weight < 1 || s.Weight > maxWeight {
		return fault(at.AppendToken("weight"), fmt.Sprintf("weight %d is not between 1 and %d", s.Weight, maxWeight),
			"leave it out for 1; a shard without keys is removed from the list")
	}
	primary := at.AppendToken("primary").AppendToken("addr")
	if e := validateAddr(primary, s.Primary.Addr); e != nil {
		return e
	}
	nodes := map[string]bool{s.Primary.Addr: true}
	for i, r := range s.Replicas {
		addr := at.AppendToken("replicas").AppendToken(strconv.Itoa(i)).AppendToken("addr")
		if e := validateAddr(addr, r.Addr); e != nil {
			return e
		}
		if nodes[r.Addr] {
			return fault(addr, fmt.Sprintf("node %s is in this shard twice", r.Addr), "remove one of them")
		}
		nodes[r.Addr] = true
	}
	return nil
}

func validateAddr(at jsontext.Pointer, addr string) *RecordError {
	const hint = "write host:port, such as 10.0.1.5:11211, mc1.example:11211 or [::1]:11211"
	if addr == "" {
		return fault(at, "the address is missing or empty", hint)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fault(at, fmt.Sprintf("address %q has no port, or an IPv6 host without brackets", addr), hint)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fault(at, fmt.Sprintf("address %q: the port is not a number from 1 to 65535", addr), hint)
	}
	ip, err := netip.ParseAddr(host)
	bracketed := strings.HasPrefix(addr, "[")
	switch {
	case err == nil && ip.Is6() == bracketed:
		return nil
	case err != nil && !bracketed && isHostname(host):
		return nil
	}
	return fault(at, fmt.Sprintf("address %q: the host is neither a name nor an IP address", addr), hint)
}

func isHostname(host string) bool {
	for i := range len(host) {
		c := host[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return host != ""
}

func fault(at jsontext.Pointer, problem, hint string) *RecordError {
	e := &RecordError{Problem: problem, Hint: hint}
	e.at(at)
	return e
}

func about(s *Shard, e *RecordError) *RecordError {
	e.Shard = s.ID
	return e
}
