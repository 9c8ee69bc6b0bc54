package sink

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

var kinds = []string{KindPoints160, KindKetama, KindKetamaWeighted, KindTwemproxy, KindModulo}

// validateKind checks the kind and what stands beside it. A field that the kind does not use is refused: whoever wrote it expects
// keys to lie elsewhere.
func (r *Record) validateKind() *RecordError {
	if !slices.Contains(kinds, r.Kind) {
		return fault("/kind", fmt.Sprintf("ring kind %q is not known", r.Kind), "use one of "+strings.Join(kinds, ", "))
	}
	if hashes := knownHashes(r.Kind); r.Hash != "" && len(hashes) == 0 {
		return fault("/hash", fmt.Sprintf("a ring of kind %s has its own hash", r.Kind), "remove the field")
	} else if r.Hash != "" && !slices.Contains(hashes, r.Hash) {
		return fault("/hash", fmt.Sprintf("hash %q is not known", r.Hash), "use one of "+strings.Join(hashes, ", "))
	}
	if r.Kind != KindTwemproxy && r.HashTag != "" {
		return fault("/hash_tag", fmt.Sprintf("clients of a ring of kind %s hash the whole key", r.Kind), "remove the field")
	}
	if r.HashTag != "" && (len(r.HashTag) != 2 || badKeyByte(r.HashTag) >= 0) {
		return fault("/hash_tag", fmt.Sprintf("hash tag %q is not two characters", r.HashTag), `write it as twemproxy's configuration has it, such as "{}"`)
	}
	known := []string{ElsewhereEject, ElsewhereGutter, ElsewhereFailover}
	for i, e := range r.Elsewhere {
		if !slices.Contains(known, e) {
			return fault("/elsewhere/"+jsontext.Pointer(strconv.Itoa(i)), fmt.Sprintf("%q is not known", e), "use "+strings.Join(known, ", "))
		}
	}
	return nil
}

// validateServer checks what the shard's place on a ring of that kind is made of. labels has those of the shards before.
func validateServer(at jsontext.Pointer, kind string, s *Shard, labels map[string]int, i int) *RecordError {
	ketama := kind == KindKetama || kind == KindKetamaWeighted || kind == KindTwemproxy
	if s.Server != "" && !ketama {
		return fault(at.AppendToken("server"), fmt.Sprintf("a ring of kind %s is not made of servers' names", kind), "remove the field")
	}
	if s.Name != "" && kind != KindTwemproxy {
		return fault(at.AppendToken("name"), "only twemproxy gives its servers names", "remove the field, or write server")
	}
	if s.Name != "" && s.Server != "" {
		return fault(at.AppendToken("server"), "a server with a name is on the ring by that alone", "remove server or name")
	}
	if i := badKeyByte(s.Name); i >= 0 {
		return fault(at.AppendToken("name"), fmt.Sprintf("byte %d is 0x%02x, a space or a control byte", i+1, s.Name[i]),
			"write the name as twemproxy's configuration has it, after the weight")
	}
	if s.Server != "" {
		if e := validateAddr(at.AppendToken("server"), s.Server); e != nil {
			return e
		}
	}
	if s.Weight != 1 && (kind == KindKetama || kind == KindModulo) {
		return fault(at.AppendToken("weight"), fmt.Sprintf("clients of a ring of kind %s know no weights", kind), "leave it out"+map[bool]string{true: ", or use ketama_weighted"}[kind == KindKetama])
	}
	if !ketama {
		return nil
	}
	label := s.label()
	if first, twice := labels[label]; twice {
		return fault(at.AppendToken("server"), fmt.Sprintf("the shard at index %d has the same name on the ring, %q", first, label),
			"write each server as the clients' configuration has it")
	}
	labels[label] = i
	return nil
}
