package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/flush"
	"invalidator/replay"
)

// RefusedRequest is a request that cannot be meant: nothing was written.
type RefusedRequest struct{ What string }

func (e *RefusedRequest) Error() string { return e.What }

func refuse(format string, args ...any) error {
	return &RefusedRequest{fmt.Sprintf(format, args...)}
}

// Desk is where a person asks for replays and flushes: it checks a request against what the fleet has written down, writes it to the control topic, and
// says what became of it. It needs Kafka alone.
type Desk struct {
	kafka  changelog.Options
	names  changelog.Names
	group  string
	maxTTL time.Duration
	config *config.Config
	cl     *kgo.Client
	adm    *kadm.Client
	out    *changelog.Writer
	log    *slog.Logger
}

// OpenDesk asks for a broker; Close it.
func OpenDesk(ctx context.Context, c *config.Config, log *slog.Logger) (*Desk, error) {
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return nil, err
	}
	return openDesk(ctx, o, c, log)
}

func openDesk(ctx context.Context, o changelog.Options, c *config.Config, log *slog.Logger) (*Desk, error) {
	cl, err := o.Connect(ctx)
	if err != nil {
		return nil, err
	}
	out, err := changelog.OpenWriter(o)
	if err != nil {
		cl.Close()
		return nil, err
	}
	return &Desk{
		kafka: o, names: changelog.NamesFor(c.Kafka.TopicPrefix), group: c.Kafka.Group, maxTTL: c.Cache.MaxTTL, config: c,
		cl: cl, adm: kadm.NewClient(cl), out: out, log: log,
	}, nil
}

// Close lets go of the connections.
func (d *Desk) Close() {
	d.out.Close()
	d.cl.Close()
}

// Draft is a request that was checked, and what is known of it before it is written.
type Draft struct {
	Request replay.Request
	Records int64  // of a replay: about so many lie in its window
	Keys    int64  // of a replay: about so many of them give a key that is meant, where each gives one
	Workers int    // that are running
	Hint    string // what else may have to be asked for; empty: nothing
}

// Draft checks a replay or a flush: its target, its window, its limit. A name that is short for another is written out. The error is a *RefusedRequest
// where it cannot be meant.
func (d *Desk) Draft(ctx context.Context, r replay.Request, now time.Time) (Draft, error) {
	ctx, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	if err := checkRequestID(r.ID); err != nil {
		return Draft{}, err
	}
	if err := checkWindow(r, now); err != nil {
		return Draft{}, err
	}
	known, err := d.known(ctx, now)
	if err != nil {
		return Draft{}, err
	}
	if err := known.check(&r); err != nil {
		return Draft{}, err
	}
	if _, err := flush.ParseLimit(r.MaxLoad); r.MaxLoad != "" && err != nil {
		return Draft{}, refuse("--max-load: %v", err)
	}
	draft := Draft{Request: r, Workers: known.workers}
	if r.Action != replay.Replay {
		return draft, nil
	}
	reach, err := d.reach(ctx, r, now)
	if err != nil {
		return Draft{}, err
	}
	if err := reach.refusal(r, known, now); err != nil {
		return Draft{}, err
	}
	draft.Records = reach.records
	draft.Keys = int64(float64(reach.records) * known.share(r.Target))
	draft.Hint = known.promotionHint(r.Target)
	return draft, nil
}

// requestID is what an id chosen by a person may be: others are of the service's own requests.
var requestID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func checkRequestID(id string) error {
	if !requestID.MatchString(id) {
		return refuse("the id %q is none: use letters, digits, '.', '_' and '-', at most 100", id)
	}
	return nil
}

func checkWindow(r replay.Request, now time.Time) error {
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case !r.Expires.IsZero() && !r.Expires.After(now):
		return refuse("it would have expired already, at %s", text(r.Expires))
	case r.Action != replay.Replay:
		return nil
	case r.From.IsZero():
		return refuse("a replay needs a window: --since 30s, or --from T --to T")
	case r.From.After(now):
		return refuse("the window begins in the future: at %s, and now is %s", text(r.From), text(now))
	case r.To.After(now):
		return refuse("the window ends in the future: at %s, and now is %s (leave --to out to go on until it is planned)", text(r.To), text(now))
	case !r.To.IsZero() && !r.From.Before(r.To):
		return refuse("the window is the wrong way round: it begins at %s and ends at %s", text(r.From), text(r.To))
	}
	return nil
}

// Ask writes a request to the control topic. One of the same id that asks for the same is there already: again says so, and nothing is written. Where it asks for
// something else the error is a *RefusedRequest. After another error it is not known whether it was written: the same id again is harmless.
func (d *Desk) Ask(ctx context.Context, r replay.Request) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	book, err := d.requests(ctx)
	if err != nil {
		return false, err
	}
	if was, there := book.asked(r.ID); there {
		if what := differs(was, r); what != "" {
			return false, refuse("the id %s is taken: %s asked with it for another %s, at %s (choose another --id)", r.ID, was.By, what, was.At.UTC().Format(time.RFC3339))
		}
		return true, nil
	}
	value, err := replay.Encode(r)
	if err != nil {
		return false, &RefusedRequest{err.Error()}
	}
	if err := d.out.Write(ctx, d.names.Control, r.ID, value); err != nil {
		return false, fmt.Errorf("asking for %s: %w (it is not known whether it is there: the same again with --id %s is harmless)", r.ID, err, r.ID)
	}
	return false, nil
}

// differs says in what two requests of one id ask for something else; empty: in nothing. A window that ends when it is planned, and began so long before its request, is
// the same one a minute later.
func differs(a, b replay.Request) string {
	switch {
	case a.Action != b.Action:
		return "thing (" + string(a.Action) + ")"
	case a.Of != b.Of:
		return "id (" + a.Of + ")"
	case a.Target.String() != b.Target.String():
		return "target (" + a.Target.String() + ")"
	case a.Window != b.Window, a.Window == replay.Committed && (!a.From.Equal(b.From) || !a.To.Equal(b.To)),
		a.Window == replay.Issued && a.At.Sub(a.From).Round(time.Second) != b.At.Sub(b.From).Round(time.Second):
		return "window (from " + a.From.UTC().Format(time.RFC3339) + ")"
	case a.Options != b.Options, a.DryRun != b.DryRun, a.Force != b.Force:
		return "way of doing it (pace, slices, stale, limit, dry run)"
	}
	return ""
}

// Word is a cancel, pause or resume of a request.
type Word struct {
	Action replay.Action
	Of     string
	By     string
	Reason string
	Force  bool // Cancel: also of what a worker asked for, whose gap then stays open
}

// Say writes a word about a replay or a flush. The error is a *RefusedRequest where it makes no sense: there is none of that id, it is over, or it is no flush.
func (d *Desk) Say(ctx context.Context, w Word, kind string, now time.Time) (Work, error) {
	ctx, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	of, err := d.Find(ctx, w.Of, now)
	if err != nil {
		return of, err
	}
	if err := checkWord(of, w, kind); err != nil {
		return of, err
	}
	id := string(w.Action) + "-" + NewRequestID(of.ID, "")
	value, err := replay.Encode(replay.Request{ID: id, At: now.UTC(), By: w.By, Reason: w.Reason, Action: w.Action, Of: of.ID, Force: w.Force})
	if err != nil {
		return of, err
	}
	if err := d.out.Write(ctx, d.names.Control, id, value); err != nil {
		return of, fmt.Errorf("writing the %s of %s: %w (again is harmless)", w.Action, of.ID, err)
	}
	return d.Find(ctx, of.ID, now)
}

func checkWord(of Work, w Word, kind string) error {
	switch {
	case of.Kind == KindEpoch:
		return refuse("%s is what a ring record makes done again: it is owed, and ends by itself", of.ID)
	case of.Kind != kind:
		return refuse("%s is a %s (invalidator %s %s %s)", of.ID, of.Kind, of.Kind, w.Action, of.ID)
	case of.State.Ended():
		return refuse("%s is over: %s", of.ID, of.State)
	case w.Action == replay.Cancel && of.Cause != nil && !w.Force:
		return refuse("%s was asked for by a worker, since keys may be stale that nothing else deletes (%s): --force cancels it all the same, and they may stay stale until they expire", of.ID, of.Cause.What)
	case w.Action == replay.Pause && of.State == WorkPaused:
		return refuse("%s is paused already", of.ID)
	case w.Action == replay.Resume && of.State != WorkPaused:
		return refuse("%s is not paused", of.ID)
	}
	return nil
}

// NewRequestID makes an id that people can read and nobody else has: replay-shard-s00-k3v9q2.
func NewRequestID(action, target string) string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && requestID.MatchString("x"+string(r)) {
			return r
		}
		return '-'
	}, action+" "+target)
	const most = 80
	return strings.Trim(name[:min(len(name), most)], "-") + "-" + fewLetters()
}

// ErrNoRequest is an id that no request has.
var ErrNoRequest = errors.New("there is no such request")
