package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// noticePrefix is that of our own logical messages. None of them is handed over as a message.
const noticePrefix = "invalidator"

// notice is what a Feeder that tends a publication writes into the log for itself, in the transaction in which it does so: it
// learns of it at its place in the log, after a crash too.
type notice struct {
	Slot   string      `json:"slot,omitempty"`
	Joined []tableName `json:"joined,omitempty"` // fed from this transaction's end on, and not before
	Gone   []tableName `json:"gone,omitempty"`   // every row that stood under this name may be gone
}

// tableName is a table's schema and name.
type tableName [2]string

func (t tableName) String() string { return t[0] + "." + t[1] }

func joinNames(names []tableName) string {
	var s []string
	for _, t := range names {
		s = append(s, t.String())
	}
	return strings.Join(s, ", ")
}

func (n *notice) empty() bool { return len(n.Joined)+len(n.Gone) == 0 }

// emit writes n into the log with the transaction.
func (n *notice) emit(ctx context.Context, tx pgx.Tx) error {
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("writing a notice: %w", err)
	}
	_, err = tx.Exec(ctx, "SELECT pg_logical_emit_message(true, $1::text, $2::text)", noticePrefix, string(text))
	return during("writing into the log what was done to the publication", err)
}

// beat writes a message into the log that changes nothing, so that an idle server's log, and with it the slot, moves on.
func beat(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(false, $1::text, '{}'::text)", noticePrefix)
	return during("writing a heartbeat into the log", err)
}

// parseNotice reads a message with our prefix; ok is false for one that somebody else wrote.
func parseNotice(content string) (n notice, ok bool) {
	return n, json.Unmarshal([]byte(content), &n) == nil
}

// included are those of names that include chooses.
func included(include *cdc.Include, database string, names []tableName) []cdc.TableID {
	var ids []cdc.TableID
	for _, t := range names {
		if include.Match(t[0], t[1]) {
			ids = append(ids, cdc.TableID{Database: database, Schema: t[0], Table: t[1]})
		}
	}
	return ids
}
