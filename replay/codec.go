package replay

import (
	"bytes"
	"encoding/json"
	"fmt"

	"invalidator/internal/changelog"
)

// Record is any record of the control topic (Request, Plan, Job) or of the status topic (Progress, Result, Gap, Event, Owed).
type Record interface {
	validate() error
}

// head begins every record. Together with the record's own fields it is one flat object.
type head struct {
	V    int    `json:"v"`
	Kind string `json:"kind"`
}

type (
	requestRecord struct {
		head
		Request
	}
	planRecord struct {
		head
		Plan
	}
	jobRecord struct {
		head
		Job
	}
	progressRecord struct {
		head
		Progress
	}
	resultRecord struct {
		head
		Result
	}
	gapRecord struct {
		head
		Gap
	}
	eventRecord struct {
		head
		Event
	}
	owedRecord struct {
		head
		Owed
	}
)

// Encode writes a record. It refuses one that Decode would refuse.
func Encode(r Record) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", r, err)
	}
	switch r := r.(type) {
	case Request:
		return marshal(requestRecord{head{Version, "request"}, r})
	case Plan:
		return marshal(planRecord{head{Version, "plan"}, r})
	case Job:
		return marshal(jobRecord{head{Version, "job"}, r})
	case Progress:
		return marshal(progressRecord{head{Version, "progress"}, r})
	case Result:
		return marshal(resultRecord{head{Version, "result"}, r})
	case Gap:
		return marshal(gapRecord{head{Version, "gap"}, r})
	case Event:
		return marshal(eventRecord{head{Version, "event"}, r})
	case Owed:
		return marshal(owedRecord{head{Version, "owed"}, r})
	}
	return nil, fmt.Errorf("encoding %T: no record of the control or status topic", r)
}

// marshal leaves <, > and & as they are: people read these records.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeControl reads a record of the control topic: a Request, Plan or Job.
func DecodeControl(data []byte) (Record, error) {
	kind, err := kindOf(data)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "request":
		return decode(data, &requestRecord{}, func(r *requestRecord) Record { return r.Request })
	case "plan":
		return decode(data, &planRecord{}, func(r *planRecord) Record { return r.Plan })
	case "job":
		return decode(data, &jobRecord{}, func(r *jobRecord) Record { return r.Job })
	}
	return nil, fmt.Errorf("decoding a control record: unknown kind %q", kind)
}

// DecodeStatus reads a record of the status topic: a Progress, Result, Gap, Event or Owed.
func DecodeStatus(data []byte) (Record, error) {
	kind, err := kindOf(data)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "progress":
		return decode(data, &progressRecord{}, func(r *progressRecord) Record { return r.Progress })
	case "result":
		return decode(data, &resultRecord{}, func(r *resultRecord) Record { return r.Result })
	case "gap":
		return decode(data, &gapRecord{}, func(r *gapRecord) Record { return r.Gap })
	case "event":
		return decode(data, &eventRecord{}, func(r *eventRecord) Record { return r.Event })
	case "owed":
		return decode(data, &owedRecord{}, func(r *owedRecord) Record { return r.Owed })
	}
	return nil, fmt.Errorf("decoding a status record: unknown kind %q", kind)
}

// KindOf reads a record's kind alone, also where the rest is a newer version's; empty where it has none.
func KindOf(data []byte) string {
	kind, _ := kindOf(data) // whoever decodes it is told
	return kind
}

func kindOf(data []byte) (string, error) {
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return "", fmt.Errorf("decoding a record: %w", err)
	}
	return h.Kind, nil
}

func decode[T any](data []byte, into *T, record func(*T) Record) (Record, error) {
	if err := changelog.DecodeStrict(data, Version, into); err != nil {
		return nil, fmt.Errorf("decoding a record: %w", err)
	}
	r := record(into)
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("decoding %T: %w", r, err)
	}
	return r, nil
}
