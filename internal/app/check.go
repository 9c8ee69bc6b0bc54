package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/mapping"
	"invalidator/sink"
)

// Finding is one result of a check: what is wrong, and where.
type Finding struct {
	Severity string `json:"severity"` // error, warning or note
	Where    string `json:"where"`    // kafka, topic …; ring; node …; source …, table …, column …; mapping file:line:col
	What     string `json:"what"`     // with the hint
}

func (f Finding) String() string { return f.Severity + ": " + f.Where + ": " + f.What }

// checkTimeout is how long one server may take to answer.
const checkTimeout = 15 * time.Second

// Check asks everything that the configuration names whether it will work, and changes nothing. Each part is asked, whatever
// the others said.
func Check(ctx context.Context, c *config.Config, log *slog.Logger) []Finding {
	out := checkMappings(ctx, c, log)
	if _, _, err := topicsOf(c); err != nil && len(c.Sources) > 0 {
		out = append(out, failed("sources", err)...)
	}
	out = append(out, checkKafka(ctx, c, log)...)
	out = append(out, checkCache(ctx, c, log)...)
	for _, s := range c.Sources {
		if s.Topics == nil {
			out = append(out, checkSource(ctx, s, log)...)
		}
	}
	return out
}

// hinted is what is wrong, with what mends it.
func hinted(what, hint string) string {
	if hint == "" {
		return what
	}
	return what + " (" + hint + ")"
}

func failed(where string, err error) []Finding {
	return []Finding{{string(cdc.SeverityError), where, err.Error()}}
}

// checkMappings looks at the files, and at what the databases and topics have of the tables that they name. That a database cannot
// be asked is told of its source, and what is wrong with the sources together by Check itself.
func checkMappings(ctx context.Context, c *config.Config, log *slog.Logger) []Finding {
	set, problems, err := mapping.Load(c.Mappings.Dir)
	if err != nil {
		return failed("mappings", err)
	}
	var live TablesChecked
	if len(c.Sources) > 0 {
		live = CheckTables(ctx, c, set, log)
		problems = append(problems, live.Problems...)
	}
	var out []Finding
	for _, f := range live.Findings {
		fed := func(s config.Source) bool { return s.Topics == nil && f.Where == "source "+s.Name }
		if f.Where != "sources" && !slices.ContainsFunc(c.Sources, fed) {
			out = append(out, f)
		}
	}
	out = append(out, live.Notes...)
	for _, t := range live.Topics {
		out = append(out, Finding{string(mapping.SeverityNote), "source " + t.Source + ", topic " + t.Topic, t.Shows()})
	}
	for _, p := range problems {
		where := fmt.Sprintf("mapping %s:%d:%d", p.File, p.Line, p.Col)
		out = append(out, Finding{string(p.Severity), where, hinted(p.What, p.Hint)})
	}
	return out
}

func checkKafka(ctx context.Context, c *config.Config, log *slog.Logger) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return failed("kafka", err)
	}
	cl, err := o.Connect(ctx)
	if err != nil {
		return failed("kafka", err)
	}
	defer cl.Close()
	findings, err := changelog.CheckTopics(ctx, kadm.NewClient(cl), topicSettings(c).Own())
	out := topicFindings(findings)
	if err != nil { // of one topic that we may not see, which the rights tell of all
		out = append(out, failed("kafka", err)...)
	}
	return append(out, checkBroker(ctx, c, cl)...)
}

func checkCache(ctx context.Context, c *config.Config, log *slog.Logger) []Finding {
	topology, _, err := ReadRegistry(ctx, c, log)
	if err != nil {
		return failed("ring", err)
	}
	return append(elsewhere(topology.Record()), checkNodes(ctx, c, topology.Nodes(), log)...)
}

// strays says what each of a record's elsewhere puts at risk, and what to do.
var strays = map[string]string{
	sink.ElsewhereEject: "twemproxy takes a server that fails out of its ring, so that its keys get copies on others; when it is back, those stay there " +
		"until they expire, and are read again at its next failure: deletes do not reach them (set auto_eject_hosts: false, or let what is read of a server that stands in expire within seconds)",
	sink.ElsewhereGutter: "a gutter pool has copies while a server fails, of keys that the ring places elsewhere: deletes do not reach them, and while the gutter is in use readers " +
		"see values as old as its expiry (keep that at a few seconds)",
	sink.ElsewhereFailover: "mcrouter or a client goes to another server while one fails, and leaves copies there: deletes do not reach them, and at the next failure they are read again " +
		"(fail to a miss in place of another server, or give what is written there an expiry of seconds: failover_exptime)",
}

// elsewhere names what, by the record, puts copies where no ring says.
func elsewhere(r *sink.Record) []Finding {
	var out []Finding
	for _, e := range r.Elsewhere {
		out = append(out, Finding{string(cdc.SeverityWarning), "ring", e + ": " + strays[e]})
	}
	return out
}

func checkSource(ctx context.Context, s config.Source, log *slog.Logger) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	feeder, err := NewFeeder(s, log)
	if err != nil {
		return failed("source "+s.Name, err)
	}
	findings, err := feeder.Check(ctx)
	var out []Finding
	for _, f := range findings {
		where := "source " + s.Name
		if f.Table != "" {
			where += ", table " + f.Table
		}
		if f.Column != "" {
			where += ", column " + f.Column
		}
		out = append(out, Finding{string(f.Severity), where, hinted(f.What, f.Hint)})
	}
	if se := (*cdc.SourceError)(nil); errors.As(err, &se) {
		err = errors.New(hinted(se.Err.Error(), se.Hint)) // which source stands in Where
	}
	if err != nil {
		out = append(out, failed("source "+s.Name, err)...)
	}
	return out
}
