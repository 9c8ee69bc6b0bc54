package app

import (
	"regexp"
	"strings"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/config"
)

// decoding says how the records of topics that somebody else feeds are read.
func decoding(source string, t *config.Topics, pattern *regexp.Regexp) envelope.Config {
	return envelope.Config{
		Format: envelope.Format(t.Format), Binary: envelope.Binary(t.Binary), Source: source, Connector: cdc.Connector(t.Connector), Table: tableOf(t.Table, pattern),
	}
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
