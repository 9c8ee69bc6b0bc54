package envelope_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// nextChange is a change as it may follow another: with one part that differs, or none, or with every part.
func nextChange(t *rapid.T, last *cdc.RowChange) *cdc.RowChange {
	c := *last
	c.Ordinal++
	text := func(s *string) { *s = rapid.SampledFrom([]string{"", "a", "b", "7", "8", `"`, "\xff"}).Draw(t, "text") }
	switch rapid.IntRange(0, 14).Draw(t, "what differs") {
	case 0:
		return drawChange(t)
	case 1:
		text(&c.Source)
	case 2:
		c.Connector = rapid.SampledFrom([]cdc.Connector{cdc.MySQL, cdc.MariaDB, cdc.Postgres}).Draw(t, "connector")
	case 3:
		text(&c.Database)
	case 4:
		text(&c.Schema)
	case 5:
		text(&c.Table)
	case 6:
		if c.Op == cdc.Insert {
			c.Op = cdc.Read
		} else if c.Op == cdc.Read {
			c.Op = cdc.Insert
		}
	case 7:
		c.CommitTime = rapid.SampledFrom([]time.Time{{}, time.UnixMicro(1), time.UnixMicro(2), time.UnixMicro(1001), time.UnixMicro(1).In(time.FixedZone("", 3600))}).Draw(t, "committed")
	case 8:
		text(&c.Tx)
	case 9:
		c.Position.Pos = rapid.Uint64Range(0, 2).Draw(t, "pos")
	case 10:
		text(&c.Position.File)
	case 11:
		c.Position.LSN = rapid.SampledFrom([]string{"", "0/1", "1/0", "0/2"}).Draw(t, "lsn")
	case 12:
		c.Ordinal = rapid.Int64Range(0, 3).Draw(t, "ordinal")
	}
	return &c
}

// An Encoder that has written other changes writes the next one as one that has written none: the same bytes, or the same error.
func TestEncoderRemembersNothingOfOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e envelope.Encoder
		c, o := drawChange(t), envelope.Options{}
		for range rapid.IntRange(2, 12).Draw(t, "changes") {
			c = nextChange(t, c)
			o.At = rapid.SampledFrom([]time.Time{o.At, {}, time.UnixMicro(1), time.UnixMicro(2)}).Draw(t, "at")
			key, value, err := e.Encode(c, o, nil)
			wantKey, wantValue, wantErr := envelope.Encode(c, o, nil)
			if diff := cmp.Diff([]string{string(wantKey), string(wantValue), errorText(wantErr)}, []string{string(key), string(value), errorText(err)}); diff != "" {
				t.Fatalf("-a new one +this one\n%s", diff)
			}
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
