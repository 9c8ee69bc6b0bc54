//go:build integration

package integration

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"invalidator/test/integration/harness"
)

// How many rows a shop may have. A window of them moves along while a test runs, so that each key sees its last change at
// another moment, and none is healed by later changes.
const (
	users   = 72
	items   = 40 // of each org
	banners = 8
	hotStep = 12 // every so many users is hot by the registry
	hot     = 8
)

var orgs = []string{"a", "b", "c"}

// shop is the schema of one database, and the keys of the cache that its rows feed.
type shop struct {
	*harness.Database
	keys      []*key
	byText    map[string]*key
	version   atomic.Int64
	altered   atomic.Bool  // the tables have a column more
	committed atomic.Int64 // transactions
}

// key is one key of the cache and the query that renders its value.
type key struct {
	shop   *shop
	text   string
	query  string
	copies int     // key#1 … besides the plain one
	pos    float64 // 0 to 1: when the window passes
}

// names are the texts under which copies of the value may be.
func (k *key) names() []string {
	out := []string{k.text}
	for n := 1; n <= k.copies; n++ {
		out = append(out, fmt.Sprintf("%s#%d", k.text, n))
	}
	return out
}

// none is what readers store for a row that is not there.
const none = "none"

// render is the value that a reader stores: the rows as text. Every change of a row raises its version, so that no two
// states of a row render the same.
func (k *key) render(ctx context.Context) (string, error) {
	rows, err := texts(ctx, k.shop.DB, k.query)
	if err != nil || len(rows) == 0 {
		return none, err
	}
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = strings.Join(r, "|")
	}
	return strings.Join(out, ";"), nil
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func texts(ctx context.Context, q querier, query string) ([][]string, error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out [][]string
	for rows.Next() {
		row, into := make([]string, len(cols)), make([]any, len(cols))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

func newShop(t testing.TB, kind harness.Kind) *shop {
	t.Helper()
	s := &shop{Database: harness.NewDatabase(t, kind), byText: map[string]*key{}}
	s.Do(t,
		`CREATE TABLE users (id BIGINT PRIMARY KEY, email VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL, ver BIGINT NOT NULL)`,
		`CREATE TABLE items (org VARCHAR(8) NOT NULL, id INT NOT NULL, label VARCHAR(64) NOT NULL, ver BIGINT NOT NULL, PRIMARY KEY (org, id))`,
		`CREATE TABLE banners (id INT PRIMARY KEY, text VARCHAR(64) NOT NULL, ver BIGINT NOT NULL)`)
	if kind == harness.Postgres {
		s.Do(t, `ALTER TABLE users REPLICA IDENTITY FULL`) // a template reads email
	}
	s.makeKeys()
	return s
}

func (s *shop) makeKeys() {
	add := func(pos float64, copies int, text, query string) {
		k := &key{shop: s, text: text, query: query, copies: copies, pos: pos}
		s.keys = append(s.keys, k)
		s.byText[text] = k
	}
	for id := 1; id <= users; id++ {
		pos, copies := float64(id)/users, 0
		if id%hotStep == 0 {
			copies = hot
		}
		add(pos, copies, s.userKey(id), fmt.Sprintf(`SELECT id, email, name, ver FROM users WHERE id = %d`, id))
		email := strings.ToLower(email(id))
		add(pos, 0, s.emailKey(email), fmt.Sprintf(`SELECT id, email, name, ver FROM users WHERE LOWER(email) = '%s' ORDER BY id`, email))
	}
	for _, org := range orgs {
		for id := 1; id <= items; id++ {
			add(float64(id)/items, 0, s.itemKey(org, id), fmt.Sprintf(`SELECT org, id, label, ver FROM items WHERE org = '%s' AND id = %d`, org, id))
		}
	}
	for id := 1; id <= banners; id++ {
		add(float64(id)/banners, hot, s.bannerKey(id), fmt.Sprintf(`SELECT id, text, ver FROM banners WHERE id = %d`, id))
	}
}

func (s *shop) userKey(id any) string { return fmt.Sprintf("%s-user:%v", s.Kind, id) }
func (s *shop) emailKey(email string) string {
	return fmt.Sprintf("%s-user:by-email:%s", s.Kind, email)
}
func (s *shop) itemKey(org string, id any) string {
	return fmt.Sprintf("%s-item:%s:%v", s.Kind, org, id)
}
func (s *shop) bannerKey(id any) string { return fmt.Sprintf("%s-banner:%v", s.Kind, id) }

// email is one of as many addresses as there are users; writers spell it in any case.
func email(n int) string { return fmt.Sprintf("Mail.%d@x.test", n) }

// registryHot are the keys that the registry must call hot.
func (s *shop) registryHot() []string {
	var out []string
	for id := hotStep; id <= users; id += hotStep {
		out = append(out, s.userKey(id))
	}
	return out
}

// mappings is the shop's mapping file.
func (s *shop) mappings() string {
	return strings.NewReplacer("KIND", string(s.Kind), "SCHEMA", s.Schema, "HOT", fmt.Sprint(hot)).Replace(`
version: 1
team: KIND
pools: [KIND-user, KIND-item, KIND-banner]
mappings:
  - name: users
    table: SCHEMA.users
    keys: ["KIND-user:{id}", "KIND-user:by-email:{email|lower}"]
  - name: items
    table: SCHEMA.items
    keys: ["KIND-item:{org}:{id}"]
  - name: banners
    table: SCHEMA.banners
    keys: [{key: "KIND-banner:{id}", hot: HOT}]
`)
}

// table is what the trail must know of a table: the keys of a row of these columns.
type table struct {
	name, columns string
	keys          func(row []string) []string
}

func (s *shop) table(name string) table {
	switch name {
	case "users":
		return table{name, "id, email", func(r []string) []string { return []string{s.userKey(r[0]), s.emailKey(strings.ToLower(r[1]))} }}
	case "items":
		return table{name, "org, id", func(r []string) []string { return []string{s.itemKey(r[0], r[1])} }}
	case "banners":
		return table{name, "id", func(r []string) []string { return []string{s.bannerKey(r[0])} }}
	}
	panic(name)
}
