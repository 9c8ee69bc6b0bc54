package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"invalidator/sink"
)

// JournalLine says what was issued in one second (or, where it is old, one minute) under one snapshot. As JSON it is an array, since a day
// has many: [at, epoch, hot revision, confirmed, mappings, [lane, lowest, highest], …], times in seconds of Unix time.
type JournalLine struct {
	At          int64 // the last second of it
	Epoch       int64 // of the ring record
	HotRevision int64 // of the hot keys
	Confirmed   int64 // when the registry last held these for certain; 0: never
	Mappings    string
	Lanes       []LaneSpan // in the order of lanes; of one there are maxLaneSpans at most
}

// LaneSpan is the lowest and the highest offset of which one lane was sent anything, or had its last acknowledgement, in any round of the
// live path or of a pass. Of passes that are far from each other in the log there is one each, so that what asks for either reads nothing between them.
type LaneSpan struct {
	Lane            sink.Lane
	Lowest, Highest int64
}

// maxLaneSpans is how many spans of one lane a line has: more passes of one lane are not under way in one second, or they are together.
const maxLaneSpans = 4

// away is how far some offsets are from the span.
func (s *LaneSpan) away(lowest, highest int64) int64 {
	return max(s.Lowest-highest, lowest-s.Highest, 0)
}

// snapshotID is what of a line names its snapshot.
type snapshotID struct {
	epoch, revision int64
	mappings        string
}

func (l *JournalLine) snapshot() snapshotID { return snapshotID{l.Epoch, l.HotRevision, l.Mappings} }

func (s *Snapshot) id() snapshotID {
	return snapshotID{s.View.Topology.Epoch(), s.View.Hot.Revision(), s.Mapper.Fingerprint()}
}

// span notes offsets, with those that they are near to, and reports whether that is news.
func (l *JournalLine) span(lane sink.Lane, lowest, highest int64) (news bool) {
	var s *LaneSpan // the nearest
	n := 0
	for i := range l.Lanes {
		if is := &l.Lanes[i]; is.Lane == lane {
			if n++; s == nil || is.away(lowest, highest) < s.away(lowest, highest) {
				s = is
			}
		}
	}
	if s != nil && (n == maxLaneSpans || s.away(lowest, highest) <= nearby) {
		news = lowest < s.Lowest || highest > s.Highest
		s.Lowest, s.Highest = min(s.Lowest, lowest), max(s.Highest, highest)
		return news
	}
	at, _ := slices.BinarySearchFunc(l.Lanes, lane, func(s LaneSpan, lane sink.Lane) int { return int(s.Lane) - int(lane) })
	l.Lanes = slices.Insert(l.Lanes, at, LaneSpan{lane, lowest, highest})
	return true
}

// fold takes a later or earlier line of the same snapshot in. What comes out says less, and nothing wrong: something as low was issued by
// then, and not all of it so late.
func (l *JournalLine) fold(o *JournalLine) {
	l.At, l.Confirmed = max(l.At, o.At), max(l.Confirmed, o.Confirmed)
	for _, s := range o.Lanes {
		l.span(s.Lane, s.Lowest, s.Highest)
	}
}

// lowest is the lowest offset of all its lanes; there is one at least.
func (l *JournalLine) lowest() int64 {
	low := l.Lanes[0].Lowest
	for _, s := range l.Lanes[1:] {
		low = min(low, s.Lowest)
	}
	return low
}

// MarshalJSON implements json.Marshaler.
func (l JournalLine) MarshalJSON() ([]byte, error) {
	fields := []any{l.At, l.Epoch, l.HotRevision, l.Confirmed, l.Mappings}
	for _, s := range l.Lanes {
		fields = append(fields, []any{s.Lane.String(), s.Lowest, s.Highest})
	}
	return json.Marshal(fields)
}

// UnmarshalJSON implements json.Unmarshaler. A lane that this version does not know is an error: nothing is left out.
func (l *JournalLine) UnmarshalJSON(b []byte) error {
	var fields []json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	if len(fields) < 6 {
		return fmt.Errorf("a journal line of %d fields", len(fields))
	}
	for i, into := range []any{&l.At, &l.Epoch, &l.HotRevision, &l.Confirmed, &l.Mappings} {
		if err := json.Unmarshal(fields[i], into); err != nil {
			return fmt.Errorf("field %d of a journal line: %w", i+1, err)
		}
	}
	l.Lanes = nil
	for _, f := range fields[5:] {
		var name string
		var s LaneSpan
		var parts []json.RawMessage
		err := json.Unmarshal(f, &parts)
		if err == nil && len(parts) != 3 {
			err = fmt.Errorf("%d fields", len(parts))
		}
		for i, into := range []any{&name, &s.Lowest, &s.Highest} {
			if err == nil {
				err = json.Unmarshal(parts[i], into)
			}
		}
		lane, known := sink.ParseLane(name)
		if err == nil && !known {
			err = fmt.Errorf("lane %q is not known", name)
		}
		if err != nil {
			return fmt.Errorf("a lane of a journal line: %w", err)
		}
		l.span(lane, s.Lowest, s.Highest)
	}
	return nil
}

func unixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
