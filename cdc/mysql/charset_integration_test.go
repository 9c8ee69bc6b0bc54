//go:build integration

package mysql

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"invalidator/cdc"
)

// TestA10Charsets asks the server for every character of the basic plane in every charset that has a table. Ours must be
// the same, or be refused: a character that differs would be a wrong key without a word. MariaDB has MySQL's tables.
func TestA10Charsets(t *testing.T) {
	b := newBed(t, "MYSQL")
	for name, cs := range charsets {
		if name == "ascii" || strings.HasPrefix(name, "ut") || name == "ucs2" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var differ, refused []string
			for start := rune(0x80); start < 0xfffd; start += 256 {
				var sql []string
				for r := start; r < start+256 && r < 0xfffd; r++ {
					many := unicode.In(r, unicode.Han, unicode.Hangul) && r%4 != 0 // a sample of these will do
					if !many && !unicode.In(r, unicode.Cs, unicode.Co) {
						sql = append(sql, fmt.Sprintf("HEX(CONVERT(_utf8mb4'%c' USING %s))", r, name))
					}
				}
				if len(sql) == 0 {
					continue
				}
				var raw []string
				for _, h := range b.ask("SELECT " + strings.Join(sql, ","))[0] {
					if h != "3F" { // a question mark: the charset has no such character
						raw = append(raw, h)
					}
				}
				if sql = sql[:0]; len(raw) == 0 {
					continue
				}
				for _, h := range raw {
					sql = append(sql, fmt.Sprintf("CONVERT(CONVERT(x'%s' USING %s) USING utf8mb4)", h, name))
				}
				for i, want := range b.ask("SELECT " + strings.Join(sql, ","))[0] {
					bytes, _ := hex.DecodeString(raw[i])
					switch got, ok := cs.text(string(bytes)); {
					case !ok:
						refused = append(refused, want)
					case got != want:
						differ = append(differ, fmt.Sprintf("%s: %q, the server says %q", raw[i], got, want))
					}
				}
			}
			if len(differ) > 0 {
				t.Errorf("%d characters differ: %.600s", len(differ), strings.Join(differ, "; "))
			}
			if len(refused) > 0 {
				t.Logf("%d characters are refused: %.200q", len(refused), strings.Join(refused, ""))
			}
		})
	}
}

// Names and labels are read from the catalogue whatever charset the server gives to connections that do not say: latin1 is the default
// of MariaDB before 11.6.
func TestA10NamesUnderALatin1Server(t *testing.T) {
	eachMinimal(t, func(b *bed) {
		b.awaits("SELECT @@GLOBAL.character_set_server", map[string]string{"MYSQL": "utf8mb4", "MARIADB": "latin1"}[b.service])
		b.do("CREATE TABLE `tä汉` (`ü` INT PRIMARY KEY, e ENUM('ä','汉') CHARACTER SET utf8mb4) CHARACTER SET utf8mb4")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO `tä汉` VALUES (1,'汉')")
		b.wants(tp.take(1), "tä汉 c - {ü=1 e=汉}")
		tp.loses()
	})
}
