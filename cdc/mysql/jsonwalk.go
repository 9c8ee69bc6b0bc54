package mysql

import "github.com/go-mysql-org/go-mysql/replication"

// maxJSONDepth is MySQL's own limit.
const maxJSONDepth = 100

// jsonWalk follows a binary JSON document's offsets as a decoder would, and counts. The driver's decoder trusts them: a
// document that points at itself would keep it busy for ever.
type jsonWalk struct {
	budget  int
	doubles bool     // it has met a double
	keep    bool     // it gathers numbers
	numbers []string // see number
}

// isFinite says whether a document has no more parts than a document of its size can have.
func isFinite(doc string) bool {
	w := jsonWalk{budget: len(doc)}
	return doc != "" && w.follow(doc[0], doc[1:], 0)
}

func (w *jsonWalk) follow(kind byte, data string, depth int) bool {
	if w.budget--; w.budget < 0 || depth > maxJSONDepth {
		return false
	}
	if kind > replication.JSONB_LARGE_ARRAY {
		return w.number(kind, data) // a scalar, whose length the decoder checks
	}
	large := kind == replication.JSONB_LARGE_OBJECT || kind == replication.JSONB_LARGE_ARRAY
	width := 2
	if large {
		width = 4
	}
	in := &cursor{s: data}
	count, size := int(in.le(width)), int(in.le(width))
	if in.short || size > len(data) {
		return false
	}
	if kind == replication.JSONB_SMALL_OBJECT || kind == replication.JSONB_LARGE_OBJECT {
		in.take(count * (width + 2))
	}
	for range count {
		child, at := byte(in.le(1)), int(in.le(width))
		if in.short {
			return false
		}
		if isInline(child, large) {
			w.number(child, "")
			continue
		}
		if at >= size || !w.follow(child, data[at:size], depth+1) {
			return false
		}
	}
	return true
}

// isInline says whether a value stands in its entry, and not behind an offset.
func isInline(kind byte, large bool) bool {
	switch kind {
	case replication.JSONB_LITERAL, replication.JSONB_INT16, replication.JSONB_UINT16:
		return true
	case replication.JSONB_INT32, replication.JSONB_UINT32:
		return large
	}
	return false
}
