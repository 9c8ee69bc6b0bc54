package envelope

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// SchemaSource knows the schemas that records name.
type SchemaSource interface {
	// Schema returns the text of an Avro schema. It is called for the first record of each schema, again after an error, and from
	// any goroutine; it may block for some seconds, and keeps what it fetched. An error whose Retryable is true says that the
	// registry did not answer; any other, that there is no such schema.
	Schema(ctx context.Context, id SchemaID) (string, error)
}

// IDKind says what numbers a schema.
type IDKind string

const (
	ConfluentID IDKind = "id"        // of the Confluent API
	GlobalID    IDKind = "globalId"  // of Apicurio
	ContentID   IDKind = "contentId" // of Apicurio
	GUID        IDKind = "guid"      // of the Confluent API
)

// SchemaID names a schema.
type SchemaID struct {
	Kind   IDKind
	Number int64
	GUID   string // Kind GUID, in its usual form
}

func (id SchemaID) String() string {
	if id.Kind == GUID {
		return "guid " + id.GUID
	}
	return string(id.Kind) + " " + strconv.FormatInt(id.Number, 10)
}

// The headers that name a schema, by part of the record.
var (
	confluentHeaders = [...]string{inKey: "__key_schema_id", inValue: "__value_schema_id"}
	globalIDHeaders  = [...]string{inKey: "apicurio.key.globalId", inValue: "apicurio.value.globalId"}
	contentIDHeaders = [...]string{inKey: "apicurio.key.contentId", inValue: "apicurio.value.contentId"}
	encodingHeaders  = [...]string{inKey: "apicurio.key.encoding", inValue: "apicurio.value.encoding"}
)

const (
	magicID   = 0 // before an id of four bytes, or of eight
	magicGUID = 1 // before a GUID of sixteen, in a header
)

// schemaOf finds the schema that a part names, and what it wrote. A header wins over the prefix, since the payload behind a
// header may begin with anything. ok is false where the part names none.
func schemaOf(headers []Header, p part, raw []byte) (id SchemaID, body []byte, ok bool, err error) {
	for _, h := range headers {
		switch h.Key {
		case confluentHeaders[p]:
			id, err = confluentHeader(h.Value)
		case globalIDHeaders[p]:
			id, err = apicurioHeader(GlobalID, h.Value)
		case contentIDHeaders[p]:
			id, err = apicurioHeader(ContentID, h.Value)
		case encodingHeaders[p]:
			if string(h.Value) == "JSON" {
				err = errors.New("the JSON encoding of Avro is not read (set apicurio.registry.avro.encoding to BINARY)")
			}
		}
		if err != nil {
			return id, nil, false, fmt.Errorf("reading header %s: %w", h.Key, err)
		}
	}
	if id.Kind != "" {
		return id, raw, true, nil
	}
	if len(raw) < 5 || raw[0] != magicID {
		return id, nil, false, nil
	}
	if n := binary.BigEndian.Uint32(raw[1:]); n != 0 {
		return SchemaID{Kind: ConfluentID, Number: int64(n)}, raw[5:], true, nil
	}
	// Ids count from 1, so that four zero bytes are the upper half of Apicurio's eight.
	if len(raw) < 9 {
		return id, nil, false, errors.New("a schema id of 0")
	}
	return SchemaID{Kind: GlobalID, Number: int64(binary.BigEndian.Uint32(raw[5:]))}, raw[9:], true, nil
}

func confluentHeader(v []byte) (SchemaID, error) {
	switch {
	case len(v) == 5 && v[0] == magicID:
		return SchemaID{Kind: ConfluentID, Number: int64(binary.BigEndian.Uint32(v[1:]))}, nil
	case len(v) == 17 && v[0] == magicGUID:
		s := hex.EncodeToString(v[1:])
		return SchemaID{Kind: GUID, GUID: s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]}, nil
	}
	return SchemaID{}, fmt.Errorf("%d bytes that are no schema id", len(v))
}

func apicurioHeader(kind IDKind, v []byte) (SchemaID, error) {
	if len(v) != 8 {
		return SchemaID{}, fmt.Errorf("%d bytes, an id has 8", len(v))
	}
	return SchemaID{Kind: kind, Number: int64(binary.BigEndian.Uint64(v))}, nil
}

var errNoRegistry = errors.New("a schema id stands before the value, as of Avro (give the source its registry, and format avro or unwrapped)")

// translate reads the parts of a record that are Avro: it writes them as the JSON that Debezium would have written, so that one
// reader serves both, or an envelope's values alone. It leaves the caller's bytes alone.
func (r *reading) translate(ctx context.Context) error {
	d, rec := r.d, &r.rec
	if d.conf.Schemas == nil {
		if len(rec.Value) >= 5 && rec.Value[0] == magicID {
			return errNoRegistry
		}
		return nil
	}
	for _, p := range [...]part{inKey, inValue} {
		raw := rec.of(p)
		if *raw == nil {
			continue
		}
		id, body, ok, err := schemaOf(rec.Headers, p, *raw)
		if err == nil && ok {
			var s *avroSchema
			if s, err = d.avroSchema(ctx, id); err == nil {
				if err = r.avroPart(p, s, body); err != nil {
					err = fmt.Errorf("schema %s: %w", id, err)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("reading the %s as Avro: %w", p, err)
		}
	}
	return nil
}

// avroPart reads an envelope where it stands, and writes anything else as JSON.
func (r *reading) avroPart(p part, s *avroSchema, body []byte) (err error) {
	r.rec.schemas[p] = s.schema
	if p == inValue && s.envelope != nil && r.d.conf.Format != Unwrapped && r.d.conf.Format != Maxwell {
		return r.avroValue(s, body)
	}
	r.s.avro[p], err = s.json(r.s.avro[p], body)
	*r.rec.of(p) = r.s.avro[p]
	return err
}

func (d *Decoder) avroSchema(ctx context.Context, id SchemaID) (*avroSchema, error) {
	var buf [64]byte
	key := strconv.AppendInt(append(append(buf[:0], id.Kind...), ' '), id.Number, 10)
	key = append(key, id.GUID...)
	if s, ok := d.avro.get(key); ok {
		return s, nil
	}
	text, err := d.conf.Schemas.Schema(ctx, id)
	if err != nil {
		return nil, err
	}
	s, err := parseAvro(text)
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", id, err)
	}
	return d.avro.put(append([]byte(nil), key...), s), nil
}
