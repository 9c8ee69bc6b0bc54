package mysql

import (
	"encoding/hex"
	"net/netip"

	"invalidator/cdc"
)

// specialText shows MariaDB's types that the log writes as fixed bytes, less the zero bytes at their end.
func specialText(kind, s string) cdc.Value {
	var b [16]byte
	if copy(b[:], s) < len(s) || kind == "inet4" && len(s) > 4 {
		return unclear("a value of type %s with %d bytes", kind, len(s))
	}
	v := cdc.Value{Kind: cdc.Text}
	switch kind {
	case "inet6":
		v.S = netip.AddrFrom16(b).String()
	case "inet4":
		v.S = netip.AddrFrom4([4]byte(b[:4])).String()
	default:
		h := hex.EncodeToString(b[:])
		v.S = h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	}
	return v
}
