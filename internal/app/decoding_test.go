package app

import (
	"regexp"
	"testing"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

// A topic's table comes from the configuration, or from the pattern's named groups.
func TestTableOf(t *testing.T) {
	for _, tt := range []struct {
		table, pattern, topic string
		want                  cdc.TableID
		ok                    bool
	}{
		{"shop.users", "rows", "rows", cdc.TableID{Schema: "shop", Table: "users"}, true},
		{"", `rows-(?P<schema>\w+)-(?P<table>\w+)`, "rows-shop-users", cdc.TableID{Schema: "shop", Table: "users"}, true},
		{"", `(?P<database>\w+)/(?P<table>\w+)?`, "base/users", cdc.TableID{Database: "base", Table: "users"}, true},
		{"", `(?P<database>\w+)/(?P<table>\w+)?`, "base/", cdc.TableID{Database: "base"}, false},
		{"", `rows-(?P<table>\w+)`, "other", cdc.TableID{}, false},
	} {
		got, ok := tableOf(tt.table, changelog.WholeName(regexp.MustCompile(tt.pattern)))(tt.topic)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s of %s: %+v, %t", tt.topic, tt.pattern, got, ok)
		}
	}
	if tableOf("", regexp.MustCompile("a")) != nil {
		t.Error("without a word on it, the topic's last two parts are the table")
	}
}
