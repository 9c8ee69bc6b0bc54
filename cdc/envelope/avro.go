package envelope

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/twmb/avro"
)

// avroSchema is a schema of a registry: how its records stand in bytes, and what it says about their columns.
type avroSchema struct {
	*schema
	top      *avroType
	envelope *avroEnvelope // nil: its records are written as JSON whole
}

type avroKind uint8

const (
	avroNull avroKind = iota
	avroBoolean
	avroInt // and long
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroArray
	avroMap
	avroRecord
	avroUnion
)

var avroKinds = map[string]avroKind{
	"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroInt, "float": avroFloat, "double": avroDouble, "bytes": avroBytes,
	"string": avroString, "fixed": avroFixed, "enum": avroEnum, "array": avroArray, "map": avroMap, "record": avroRecord, "error": avroRecord, "union": avroUnion,
}

// avroType is how values of one type stand in a record's bytes.
type avroType struct {
	kind  avroKind
	names [][]byte    // avroRecord: `"name":` of each of sub; avroEnum: the symbols, quoted
	sub   []*avroType // of a record's fields, of a union's branches, of an array's or map's elements
	size  int         // avroFixed

	wanted lastWanted // avroRecord: of an image
}

// anyNames takes the names that databases allow and Avro does not.
var anyNames = avro.WithLaxNames(func(string) error { return nil })

// JoinSchemas is the text of a schema with those that it refers to written into it. A schema refers to named types of another as if
// they stood before it; each of references comes after those that it refers to itself.
func JoinSchemas(references []string, schema string) (string, error) {
	var all avro.SchemaCache
	for _, text := range references {
		if _, err := all.Parse(text, anyNames); err != nil {
			return "", err
		}
	}
	s, err := all.Parse(schema, anyNames)
	if err != nil {
		return "", err
	}
	return s.String(), nil
}

// parseAvro compiles a schema. Named types are written out where they are used, which a recursive one cannot be: no table has
// such rows.
func parseAvro(text string) (*avroSchema, error) {
	parsed, err := avro.Parse(text, anyNames)
	if err != nil {
		return nil, fmt.Errorf("not an Avro schema (JSON Schema and Protobuf are not read): %w", err)
	}
	root := parsed.Root().ExpandReferences()
	top, err := compileAvro(root)
	if err != nil {
		return nil, err
	}
	s := &avroSchema{schema: newSchema(avroField(root)), top: top, envelope: newAvroEnvelope(top)}
	if top.kind == avroRecord && !top.doubled() {
		for i := range root.Fields {
			s.names = append(s.names, root.Fields[i].Name)
		}
	}
	return s, nil
}

func compileAvro(n *avro.SchemaNode) (*avroType, error) {
	kind, ok := avroKinds[n.Type]
	if !ok {
		return nil, fmt.Errorf("type %s holds itself, or is too large to write out", n.Type)
	}
	t := &avroType{kind: kind, size: n.Size}
	var subs []*avro.SchemaNode
	switch kind {
	case avroEnum:
		for _, symbol := range n.Symbols {
			t.names = append(t.names, quoted(symbol))
		}
	case avroArray:
		subs = append(subs, n.Items)
	case avroMap:
		subs = append(subs, n.Values)
	case avroRecord:
		for i := range n.Fields {
			t.names = append(t.names, append(quoted(n.Fields[i].Name), ':'))
			subs = append(subs, &n.Fields[i].Type)
		}
	case avroUnion:
		for i := range n.Branches {
			subs = append(subs, &n.Branches[i])
		}
	}
	for _, sub := range subs {
		s, err := compileAvro(sub)
		if err != nil {
			return nil, err
		}
		t.sub = append(t.sub, s)
	}
	return t, nil
}

func quoted(s string) []byte {
	b, err := appendString(nil, s)
	if err != nil { // the schema came as JSON
		return []byte(`""`)
	}
	return b
}

// json appends a record as JSON.
func (s *avroSchema) json(out, raw []byte) ([]byte, error) {
	in := newAvroReader(raw)
	out, err := s.top.append(slices.Grow(out, 2*len(raw)+256), &in)
	if err == nil {
		err = in.end()
	}
	return out, err
}

// avroReader reads Avro's primitives.
type avroReader struct {
	b        []byte
	limit    int // of the JSON, in bytes
	elements int // how many more may be passed over
}

// newAvroReader bounds what a record may claim. An element's JSON has two bytes at least, so that nothing is passed over that could
// not be written.
func newAvroReader(raw []byte) avroReader {
	limit := minJSON + maxGrowth*len(raw)
	return avroReader{b: raw, limit: limit, elements: limit / 2}
}

// end checks that nothing follows.
func (r *avroReader) end() error {
	if len(r.b) > 0 {
		return fmt.Errorf("%d bytes after the record (written with another schema?)", len(r.b))
	}
	return nil
}

var errAvroCut = errors.New("the record ends in the middle (written with another schema?)")

func (r *avroReader) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(r.b)) {
		return nil, errAvroCut
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out, nil
}

func (r *avroReader) long() (int64, error) {
	if len(r.b) > 0 && r.b[0] < 0x80 { // most are short
		c := r.b[0]
		r.b = r.b[1:]
		return int64(c>>1) ^ -int64(c&1), nil
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		return 0, errAvroCut
	}
	r.b = r.b[n:]
	return v, nil
}

func (r *avroReader) bytes() ([]byte, error) {
	n, err := r.long()
	if err != nil {
		return nil, err
	}
	return r.take(n)
}

// append writes one value.
func (t *avroType) append(out []byte, in *avroReader) ([]byte, error) {
	switch t.kind {
	case avroNull:
		return append(out, "null"...), nil
	case avroInt:
		n, err := in.long()
		return strconv.AppendInt(out, n, 10), err
	case avroBytes:
		b, err := in.bytes()
		return appendBase64(out, view(b)), err
	case avroFixed:
		b, err := in.take(int64(t.size))
		return appendBase64(out, view(b)), err
	case avroString:
		b, err := in.bytes()
		if err != nil {
			return out, err
		}
		return appendString(out, view(b))
	case avroEnum:
		i, err := in.choice(len(t.names))
		if err != nil {
			return out, err
		}
		return append(out, t.names[i]...), nil
	case avroUnion:
		sub, err := t.branch(in)
		if err != nil {
			return out, err
		}
		return sub.append(out, in)
	case avroArray, avroMap:
		return t.appendBlocks(out, in)
	case avroRecord:
		return t.appendRecord(out, in)
	}
	return t.appendFixedSize(out, in)
}

// appendFixedSize writes booleans, floats and doubles; what JSON has no number for is a text, as form.float reads it.
func (t *avroType) appendFixedSize(out []byte, in *avroReader) ([]byte, error) {
	var n float64
	bits := 64
	switch t.kind {
	case avroBoolean:
		b, err := in.take(1)
		if err != nil {
			return out, err
		}
		return strconv.AppendBool(out, b[0] != 0), nil
	case avroFloat:
		b, err := in.take(4)
		if err != nil {
			return out, err
		}
		n, bits = float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32
	case avroDouble:
		b, err := in.take(8)
		if err != nil {
			return out, err
		}
		n = math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	switch {
	case math.IsNaN(n):
		return append(out, `"NaN"`...), nil
	case math.IsInf(n, 1):
		return append(out, `"Infinity"`...), nil
	case math.IsInf(n, -1):
		return append(out, `"-Infinity"`...), nil
	}
	return strconv.AppendFloat(out, n, 'g', -1, bits), nil
}

func (t *avroType) appendRecord(out []byte, in *avroReader) ([]byte, error) {
	out = append(out, '{')
	var err error
	for i, sub := range t.sub {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = sub.append(append(out, t.names[i]...), in); err != nil {
			return out, err
		}
	}
	return append(out, '}'), nil
}

// A few bytes of a record may claim any number of elements that take none, such as nulls. So the JSON of a record with arrays is
// bounded, in bytes: by maxGrowth times the record's, and minJSON.
const (
	minJSON   = 1 << 20
	maxGrowth = 64
)

var errAvroBomb = errors.New("an array that claims more elements than a record of its size may hold")

// block is how many elements the next block has; 0 ends an array or map. The least integer has no positive: so many elements end in
// the middle, or are too many.
func (r *avroReader) block() (count int64, err error) {
	if count, err = r.long(); err == nil && count < 0 { // with the block's size in bytes
		count = -count
		_, err = r.long()
	}
	return count, err
}

// appendBlocks writes an array, or a map.
func (t *avroType) appendBlocks(out []byte, in *avroReader) ([]byte, error) {
	open, closing := byte('['), byte(']')
	if t.kind == avroMap {
		open, closing = '{', '}'
	}
	out = append(out, open)
	for first := true; ; {
		count, err := in.block()
		if err != nil {
			return out, err
		}
		if count == 0 {
			return append(out, closing), nil
		}
		for ; count != 0; count-- {
			if !first {
				out = append(out, ',')
			}
			first = false
			if t.kind == avroMap {
				name, err := in.bytes()
				if err != nil {
					return out, err
				}
				if out, err = appendString(out, view(name)); err != nil {
					return out, err
				}
				out = append(out, ':')
			}
			if out, err = t.sub[0].append(out, in); err != nil {
				return out, err
			}
			if len(out) > in.limit {
				return out, errAvroBomb
			}
		}
	}
}

// semanticOf are Connect's names for Avro's logical types, where a schema does not come from Connect.
var semanticOf = map[string]string{
	"decimal": "org.apache.kafka.connect.data.Decimal", "uuid": "io.debezium.data.Uuid",
	"date": "org.apache.kafka.connect.data.Date", "time-millis": "org.apache.kafka.connect.data.Time", "time-micros": "io.debezium.time.MicroTime",
	"timestamp-millis": "org.apache.kafka.connect.data.Timestamp", "timestamp-micros": "io.debezium.time.MicroTimestamp",
	"timestamp-nanos": "io.debezium.time.NanoTimestamp", "local-timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
	"local-timestamp-micros": "io.debezium.time.MicroTimestamp", "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
}

// wireOf are Connect's names for Avro's types.
var wireOf = map[string]string{"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes", "record": "struct"}

// avroField is what a schema says about a column, in Connect's words.
func avroField(n *avro.SchemaNode) *field {
	n = notNull(n)
	f := &field{wire: n.Type, scale: unknown, length: unknown}
	if wire, ok := wireOf[n.Type]; ok {
		f.wire = wire
	}
	if wire := prop(n, "connect.type"); wire != "" {
		f.wire = wire
	}
	if f.semantic = prop(n, "connect.name"); f.semantic == "" {
		f.semantic = semanticOf[n.LogicalType]
	}
	if n.LogicalType == "decimal" {
		f.scale = n.Scale
	}
	if params, ok := n.Props["connect.parameters"].(map[string]any); ok {
		f.setParameters(func(name string) string {
			text, _ := params[name].(string)
			return text
		})
	}
	switch n.Type {
	case "array":
		f.items = avroField(n.Items)
	case "record":
		f.fields = map[string]*field{}
		for i := range n.Fields {
			of := &n.Fields[i]
			sub := avroField(&of.Type)
			if of.HasDefault && of.Type.Type != "union" {
				sub.fallback = defaultText(of.Default)
			}
			f.fields[of.Name] = sub
		}
	}
	return f
}

// notNull is the one branch of a union that is not null; a union of several stays, and is unclear.
func notNull(n *avro.SchemaNode) *avro.SchemaNode {
	var only *avro.SchemaNode
	for i := range n.Branches {
		if n.Branches[i].Type == "null" {
			continue
		}
		if only != nil {
			return n
		}
		only = &n.Branches[i]
	}
	if only != nil {
		return only
	}
	return n
}

func prop(n *avro.SchemaNode, name string) string {
	text, _ := n.Props[name].(string)
	return text
}

// defaultText is a column's default as avroType.append would write it; nil for what is none of a plain column.
func defaultText(v any) []byte {
	switch v := v.(type) {
	case string:
		if utf8.ValidString(v) {
			return quoted(v)
		}
	case []byte:
		return append(base64.StdEncoding.AppendEncode([]byte{'"'}, v), '"')
	case bool:
		return strconv.AppendBool(nil, v)
	case int32:
		return strconv.AppendInt(nil, int64(v), 10)
	case int64:
		return strconv.AppendInt(nil, v, 10)
	case float32:
		return strconv.AppendFloat(nil, float64(v), 'g', -1, 32)
	case float64:
		return strconv.AppendFloat(nil, v, 'g', -1, 64)
	}
	return nil
}
