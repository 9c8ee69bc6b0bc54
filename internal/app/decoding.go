package app

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/config"
	"invalidator/internal/pipeline"
	"invalidator/internal/schemas"
)

// decoding says how the records of topics that somebody else feeds are read.
func decoding(source string, t *config.Topics, pattern *regexp.Regexp) (envelope.Config, error) {
	c := envelope.Config{
		Format: envelope.Format(t.Format), Binary: envelope.Binary(t.Binary), Source: source, Connector: cdc.Connector(t.Connector), Table: tableOf(t.Table, pattern),
		Snapshots: t.Snapshots, Unavailable: t.Unavailable,
	}
	r := t.Registry
	if r == nil {
		return c, nil
	}
	tls, err := tlsConfig("source "+source+": topics.registry.tls", r.TLS)
	if err != nil {
		return c, err
	}
	if c.Schemas, err = schemas.New(schemas.Options{URL: r.URL.Reveal(), User: r.User, Password: r.Password.Reveal(), TLS: tls}); err != nil {
		return c, fmt.Errorf("source %s: %w", source, err)
	}
	return c, nil
}

// countSchemas has what the sources ask their schema registries for counted.
func countSchemas(sources []*pipeline.Source, r prometheus.Registerer) error {
	m, err := schemas.NewMetrics(r)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if s.Decode.Schemas != nil {
			s.Decode.Schemas = m.Count(s.Name, s.Decode.Schemas)
		}
	}
	return nil
}

// tableOf names the table of a topic: the one that is configured, or what the pattern's named groups find. It is nil where
// neither says any, which leaves the topic's last two parts.
func tableOf(table string, pattern *regexp.Regexp) func(topic string) (cdc.TableID, bool) {
	if schema, name, ok := strings.Cut(table, "."); ok {
		return func(string) (cdc.TableID, bool) { return cdc.TableID{Schema: schema, Table: name}, true }
	}
	group := pattern.SubexpIndex("table")
	if group < 0 {
		return nil
	}
	return func(topic string) (cdc.TableID, bool) {
		found := pattern.FindStringSubmatch(topic)
		if found == nil {
			return cdc.TableID{}, false
		}
		of := func(name string) string {
			if i := pattern.SubexpIndex(name); i >= 0 {
				return found[i]
			}
			return ""
		}
		return cdc.TableID{Database: of("database"), Schema: of("schema"), Table: of("table")}, found[group] != ""
	}
}
