package cdc

import (
	"errors"
	"fmt"
	"testing"
)

// Both texts are one line that an operator can act on.
func TestOperatorTexts(t *testing.T) {
	e := &SourceError{
		Source: "shop", Table: TableID{Schema: "shop", Table: "users"}, Column: "email", At: Position{File: "binlog.000006", Pos: 4},
		Err: fmt.Errorf("resuming: %w", ErrGap), Hint: "flush the pools of shop.users",
	}
	want := "source shop, table shop.users, column email, at binlog.000006:4: resuming: gap in the log (flush the pools of shop.users)"
	if e.Error() != want || !errors.Is(e, ErrGap) || e.Retryable() {
		t.Errorf("%v", e)
	}
	f := Finding{Severity: SeverityWarning, Source: "shop", Table: "shop.users", What: "the old email is not in the log", Hint: "set REPLICA IDENTITY FULL"}
	if want := "warning: source shop, table shop.users: the old email is not in the log (set REPLICA IDENTITY FULL)"; f.String() != want {
		t.Errorf("%s", f)
	}
}
