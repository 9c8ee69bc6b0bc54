package mysql

import (
	"net/netip"

	"invalidator/cdc"
)

// specialText shows MariaDB's types that the log writes as fixed bytes.
func specialText(kind, s string) cdc.Value {
	switch {
	case kind == "inet6" && len(s) <= 16:
		var a [16]byte
		copy(a[:], s)
		return cdc.Value{Kind: cdc.Text, S: netip.AddrFrom16(a).String()}
	case kind == "inet4" && len(s) <= 4:
		var a [4]byte
		copy(a[:], s)
		return cdc.Value{Kind: cdc.Text, S: netip.AddrFrom4(a).String()}
	}
	return unclear("a value of type %s of %d bytes, which cannot be read", kind, len(s))
}
