package schemas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"

	"invalidator/cdc/envelope"
)

// maxReferences bounds the schemas that one refers to, itself or by others.
const maxReferences = 256

// ErrCircle says that a schema refers to itself, by others or at once. No registry takes such a schema.
var ErrCircle = errors.New("schemas refer to each other in a circle")

// version is one version of a subject. It never changes.
type version struct {
	subject string
	number  int
}

func (v version) String() string { return fmt.Sprintf("subject %s, version %d", v.subject, v.number) }

// noReference is a schema that another refers to, and that the registry does not have.
type noReference struct {
	name string
	of   version
	err  error
}

func (e *noReference) Error() string {
	return fmt.Sprintf("it refers to %s, %s, which the registry does not have", e.name, e.of)
}

func (e *noReference) Unwrap() error { return e.err }

// joined is the text of a schema with those that it refers to written into it.
func (c *Client) joined(ctx context.Context, s sr.Schema) (string, error) {
	if len(s.References) == 0 {
		return s.Schema, nil
	}
	r := resolver{c: c, done: map[version]bool{}}
	if err := r.all(ctx, s.References); err != nil {
		return "", err
	}
	text, err := envelope.JoinSchemas(r.texts, s.Schema)
	if err != nil {
		return "", &refused{fmt.Errorf("joining it with the schemas that it refers to: %w", err)}
	}
	return text, nil
}

// resolver gathers what a schema refers to, each after what it refers to itself.
type resolver struct {
	c     *Client
	done  map[version]bool
	open  []version // from the schema down to where it stands
	texts []string
}

func (r *resolver) all(ctx context.Context, refs []sr.SchemaReference) error {
	for _, ref := range refs {
		if err := r.one(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolver) one(ctx context.Context, ref sr.SchemaReference) error {
	v := version{ref.Subject, ref.Version}
	if r.done[v] {
		return nil
	}
	for i, o := range r.open {
		if o == v {
			return &refused{fmt.Errorf("%w: %s", ErrCircle, way(append(r.open[i:], v)))}
		}
	}
	if len(r.done)+len(r.open) == maxReferences {
		return &refused{fmt.Errorf("it refers to over %d schemas", maxReferences)}
	}
	s, err := r.c.version(ctx, v)
	if isUnknown(err) {
		err = &noReference{ref.Name, v, err}
	}
	if err != nil {
		return err
	}
	if s.Type != sr.TypeAvro {
		return &refused{fmt.Errorf("it refers to %s, %s, which is %s: only Avro is read", ref.Name, v, s.Type)}
	}
	r.open = append(r.open, v)
	if err := r.all(ctx, s.References); err != nil {
		return err
	}
	r.open = r.open[:len(r.open)-1]
	r.done[v] = true
	r.texts = append(r.texts, s.Schema)
	return nil
}

func way(vs []version) string {
	texts := make([]string, len(vs))
	for i, v := range vs {
		texts[i] = v.String()
	}
	return strings.Join(texts, " -> ")
}

// version fetches a version of a subject, and keeps it: what was fetched before a timeout is there at the next try.
func (c *Client) version(ctx context.Context, v version) (sr.Schema, error) {
	c.mu.Lock()
	s, ok := c.versions[v]
	c.mu.Unlock()
	if ok {
		return s, nil
	}
	got, err := c.confluent.SchemaByVersion(ctx, v.subject, v.number)
	if err != nil {
		return sr.Schema{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	keep(c.versions, v, got.Schema)
	return got.Schema, nil
}

// isUnknown reports whether the registry says that there is no such schema, subject or version. Apicurio names what its own API does
// not find. Another 404 says that the URL is wrong, and no schema is to blame for that.
func isUnknown(err error) bool {
	var re *sr.ResponseError
	if !errors.As(err, &re) || re.StatusCode != http.StatusNotFound {
		return false
	}
	switch re.ErrorCode {
	case codeSubjectNotFound, codeVersionNotFound, codeSchemaNotFound:
		return true
	}
	return strings.Contains(string(re.Raw), "ArtifactNotFoundException") || strings.Contains(string(re.Raw), "ContentNotFoundException")
}

// Confluent's error codes.
const (
	codeSubjectNotFound = 40401
	codeVersionNotFound = 40402
	codeSchemaNotFound  = 40403
)
