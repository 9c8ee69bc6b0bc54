package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
)

// Place is a place in a database's log, as a person writes it: a GTID (3e11fa47-…:90, of MariaDB 0-1-90), a file and a position in it (binlog.000003:1234), or an
// LSN (0/16B3748).
type Place struct {
	text   string
	domain string // what places must have in common to be compared: the server's UUID, MariaDB's domain, the files' name, "lsn"
	major  uint64 // the file's number
	minor  uint64 // the transaction's number, the position, the LSN
}

var (
	lsnPlace     = regexp.MustCompile(`^([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})$`)
	gtidPlace    = regexp.MustCompile(`^([0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}):(?:[A-Za-z_]\w*:)?([0-9]+)$`)
	mariadbPlace = regexp.MustCompile(`^([0-9]+)-[0-9]+-([0-9]+)$`)
	filePlace    = regexp.MustCompile(`^([^\s:]+)\.([0-9]+):([0-9]+)$`)
)

// ParsePlace reads a place; false where it is none.
func ParsePlace(text string) (p Place, ok bool) {
	p.text = text
	number := func(s string, base int) uint64 {
		n, err := strconv.ParseUint(s, base, 64)
		ok = ok && err == nil
		return n
	}
	ok = true
	if m := lsnPlace.FindStringSubmatch(text); m != nil {
		p.domain, p.minor = "lsn", number(m[1], 16)<<32|number(m[2], 16)
	} else if m := gtidPlace.FindStringSubmatch(text); m != nil {
		p.domain, p.minor = "uuid "+strings.ToLower(m[1]), number(m[2], 10)
	} else if m := mariadbPlace.FindStringSubmatch(text); m != nil {
		p.domain, p.minor = "domain "+m[1], number(m[2], 10)
	} else if m := filePlace.FindStringSubmatch(text); m != nil {
		p.domain, p.major, p.minor = "file "+m[1], number(m[2], 10), number(m[3], 10)
	} else {
		ok = false
	}
	return p, ok
}

// compare says whether a change lies before (-1), at or behind the place; false where its record does not say.
func (p Place) compare(c *cdc.RowChange) (int, bool) {
	texts := []string{c.Position.LSN, c.Tx, c.Position.GTIDSet}
	if c.Position.File != "" {
		texts = append(texts, c.Position.File+":"+strconv.FormatUint(c.Position.Pos, 10))
	}
	for _, text := range texts {
		if at, ok := ParsePlace(text); ok && at.domain == p.domain {
			return cmp.Or(cmp.Compare(at.major, p.major), cmp.Compare(at.minor, p.minor)), true
		}
	}
	return 0, false
}

const (
	// placeWithin is how close the times come between which a place is looked for.
	placeWithin = time.Second
	// placeRecords is how many records of a partition are looked at, of which none may say where it lies, before the next one is.
	placeRecords = 1000
	// placeTail is how many of its last ones are.
	placeTail = 50
	// placeMargin is by how much commit times may run against the order of the log.
	placeMargin = time.Second
)

// TimesAt finds a place in the topics of a source, and returns times before and behind which it was committed, those of neighbouring changes. A window from the one,
// or to the other, has all that was committed from, or to, the place. source may be empty where there is one alone. The error is a *RefusedRequest where the place
// is not in them.
func (d *Desk) TimesAt(ctx context.Context, source string, p Place) (before, behind time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*gapsTimeout)
	defer cancel()
	s, err := d.placeSource(source)
	if err != nil {
		return before, behind, err
	}
	l := &placeLook{desk: d, source: s, place: p}
	if err := l.open(ctx); err != nil {
		return before, behind, err
	}
	defer l.log.Close()
	return l.run(ctx)
}

func (d *Desk) placeSource(name string) (*pipeline.Source, error) {
	sources, _, err := topicsOf(d.config)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range sources {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	switch {
	case name == "" && len(sources) == 1:
		return sources[0], nil
	case name == "":
		return nil, refuse("a position is one of a source's log: say which with --source (there are: %s)", someOf(names))
	}
	return nil, refuse("source %q is not in the configuration (there are: %s)", name, someOf(names))
}

// placeLook looks for a place.
type placeLook struct {
	desk    *Desk
	source  *pipeline.Source
	place   Place
	topics  []string
	log     *changelog.Log
	decoder *envelope.Decoder
	lost    bool // a partition has lost its first records
}

func (l *placeLook) open(ctx context.Context) error {
	decode, none := l.source.Decode, cdc.NewColumns(nil)
	decode.Select = func(string, cdc.TableID) *cdc.Columns { return none }
	var err error
	if l.decoder, err = envelope.NewDecoder(decode); err != nil {
		return fmt.Errorf("source %s: %w", l.source.Name, err)
	}
	all, err := l.desk.adm.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	for _, topic := range all.Names() {
		if l.source.Pattern.MatchString(topic) {
			l.topics = append(l.topics, topic)
		}
	}
	if len(l.topics) == 0 {
		return refuse("source %s has no topic yet", l.source.Name)
	}
	starts, err := l.desk.adm.ListStartOffsets(ctx, l.topics...)
	if err != nil {
		return fmt.Errorf("asking where topics begin: %w", err)
	}
	starts.Each(func(o kadm.ListedOffset) { l.lost = l.lost || o.Offset > 0 })
	l.log, err = changelog.OpenLog(l.desk.kafka)
	return err
}

// run halves the time between a change before the place and one at or behind it. Both are facts, wherever the looks fell: that is what makes the window wide enough.
func (l *placeLook) run(ctx context.Context) (before, behind time.Time, err error) {
	first, err := l.look(ctx, time.UnixMilli(0))
	switch {
	case err != nil:
		return before, behind, err
	case !first.found:
		return before, behind, refuse("no record of source %s says where in its log it lies: use times", l.source.Name)
	case first.side > 0 && l.lost:
		return before, behind, refuse("%s lies before all that the topics of source %s have: they begin at %s", l.place.text, l.source.Name, first.commit.UTC().Format(time.RFC3339))
	case first.side >= 0 && !l.lost: // all there is comes behind it, or a part of the transaction lies beside it
		return time.Unix(0, 0).UTC(), windowEnd(first.commit), nil
	case first.side == 0:
		return first.commit.Add(-placeMargin), windowEnd(first.commit), nil
	}
	newest, err := l.newest(ctx, first)
	switch {
	case err != nil:
		return before, behind, err
	case newest.side < 0:
		return before, behind, refuse("nothing at or behind %s has come into the topics of source %s yet: the last change there is of %s", l.place.text, l.source.Name, newest.commit.UTC().Format(time.RFC3339))
	}
	before, behind = first.commit, newest.commit
	for low, high := first.at, newest.at; high.Sub(low) > placeWithin; {
		middle := low.Add(high.Sub(low) / 2)
		s, err := l.look(ctx, middle)
		switch {
		case err != nil:
			return before, behind, err
		case s.found && s.side < 0:
			before, low = s.commit, maxTime(s.at, middle)
		default:
			if s.found {
				behind = s.commit
			}
			high = middle
		}
	}
	return before.Add(-placeMargin), windowEnd(behind), nil
}

// windowEnd is a window's end at a commit time.
func windowEnd(commit time.Time) time.Time {
	end, now := commit.Add(placeMargin), time.Now()
	if end.Before(now) {
		return end
	}
	return now
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// seenChange is the first change from some time on that says where it lies.
type seenChange struct {
	found  bool
	side   int       // of the place: -1 before it, 0 at it, 1 behind it
	at     time.Time // of the record
	commit time.Time
}

// look finds the first change that was appended at a time or later, in any partition, and says where it lies.
func (l *placeLook) look(ctx context.Context, since time.Time) (seenChange, error) {
	listed, err := l.desk.adm.ListOffsetsAfterMilli(ctx, since.UnixMilli(), l.topics...)
	if some := (*kadm.ShardErrors)(nil); err != nil && !errors.As(err, &some) {
		return seenChange{}, fmt.Errorf("asking where topics stood at %s: %w", since.UTC().Format(time.RFC3339), err)
	}
	var heads []kadm.ListedOffset
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Timestamp >= 0 {
			heads = append(heads, o)
		}
	})
	slices.SortFunc(heads, func(a, b kadm.ListedOffset) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	var s seenChange
	for _, o := range heads {
		err := l.read(ctx, changelog.Partition{Topic: o.Topic, Number: o.Partition}, o.Offset, o.Offset+placeRecords, func(c seenChange) error {
			s = c
			return errSeen
		})
		if s.found || err != nil {
			return s, err
		}
	}
	return s, nil
}

// newest finds the last change, or the last one that lies at or behind the place: first, where none of the last of each partition says where it lies.
func (l *placeLook) newest(ctx context.Context, first seenChange) (s seenChange, err error) {
	ends, err := l.desk.adm.ListEndOffsets(ctx, l.topics...)
	if some := (*kadm.ShardErrors)(nil); err != nil && !errors.As(err, &some) {
		return s, fmt.Errorf("asking where topics end: %w", err)
	}
	starts, err := l.desk.adm.ListStartOffsets(ctx, l.topics...)
	if some := (*kadm.ShardErrors)(nil); err != nil && !errors.As(err, &some) {
		return s, fmt.Errorf("asking where topics begin: %w", err)
	}
	s = first
	for _, end := range ends.Offsets().Sorted() {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		err := l.read(ctx, changelog.Partition{Topic: end.Topic, Number: end.Partition}, max(start.Offset, end.At-placeTail), end.At, func(c seenChange) error {
			if c.side >= 0 && s.side < 0 || c.side >= s.side && c.at.After(s.at) {
				s = c
			}
			return nil
		})
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// errSeen ends a read.
var errSeen = errors.New("seen")

// read hands over the changes of a range that say where they lie.
func (l *placeLook) read(ctx context.Context, of changelog.Partition, from, to int64, each func(seenChange) error) error {
	err := l.log.Read(ctx, of, from, to, func(rs []changelog.Record) error {
		for _, r := range rs {
			c, _, err := l.decoder.DecodeContext(ctx, envelope.Record{Topic: of.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers})
			if err != nil || c == nil { // what cannot be read was parked, and says nothing here
				continue
			}
			side, ok := l.place.compare(c)
			if !ok {
				continue
			}
			s := seenChange{true, side, r.Time, c.CommitTime}
			if s.commit.IsZero() {
				s.commit = r.Time
			}
			if err := each(s); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errSeen) {
		return nil
	}
	return err
}
