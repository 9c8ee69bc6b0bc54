//go:build integration

package mysql

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"invalidator/cdc"
)

// TestA12DocumentsAsTheServerShowsThem: numbers of every size and kind among other values, at any depth.
func TestA12DocumentsAsTheServerShowsThem(t *testing.T) {
	b := newBed(t, "MYSQL")
	b.do("CREATE TABLE u (id INT PRIMARY KEY, j JSON)")
	r := rand.New(rand.NewPCG(12, 8))
	number := func() string {
		switch r.IntN(4) {
		case 0:
			return fmt.Sprint(r.Int64N(1<<r.IntN(62)+1) - 500)
		case 1:
			return fmt.Sprintf("%.*f", r.IntN(8), r.NormFloat64()*math.Pow10(r.IntN(30)-12))
		case 2:
			return fmt.Sprintf("%ge%d", math.Trunc(r.Float64()*1e4)/10, r.IntN(44)-22)
		}
		for {
			if v := math.Float64frombits(r.Uint64()); !math.IsNaN(v) && !math.IsInf(v, 0) {
				return fmt.Sprint(v)
			}
		}
	}
	tp := b.run(b.feeder(), cdc.Position{})
	rows := 0
	insert := func(sql string) {
		b.do(fmt.Sprintf("INSERT INTO u VALUES (%d, %s)", rows, sql))
		rows++
	}
	for range 60 {
		var list []string
		for range 1 + r.IntN(40) {
			list = append(list, number())
		}
		insert(fmt.Sprintf(`'{"n": %s, "b": "1,2", "list": [%s, "-7", null, {"x": %s, "-1": true}]}'`, number(), strings.Join(list, ", "), number()))
	}
	insert("'1e15'")
	insert("'-0.0'")
	insert("CONCAT('[', REPEAT('1e20,', 20000), '1]')") // large offsets
	insert("JSON_ARRAY(1e16, CAST(12345678901234567890.10 AS DECIMAL(30,2)), CAST('2024-01-02 03:04:05' AS DATETIME), 9007199254740993, 0.1e0, '0.1')")
	got := tp.take(rows)
	for i, want := range b.ask("SELECT j FROM u ORDER BY id") {
		if v := got[i].After[1]; v.Kind != cdc.JSON || v.S != want[0] {
			t.Errorf("row %d: got %.300s, the server says %.300s", i, v.S, want[0])
		}
	}
}
