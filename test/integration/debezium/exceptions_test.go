//go:build integration

package debezium

import (
	"slices"
	"strings"

	"invalidator/test/integration/harness"
)

// exception is what cdc/TYPES.md says of a route that cannot know what our feeder knows.
type exception struct {
	kind   harness.Kind
	routes []string
	keys   string // how they begin
	lacks  bool   // the route has not all the keys of our feeder
	more   bool   // the route has keys that our feeder has not: one delete too many is harmless
	why    string
}

// The routes: what a connector writes, and whether the mappings declare the columns' types.
const (
	ownDeclared    = "ours, declared"
	schemaBare     = "schema"
	schemaDeclared = "schema, declared"
	plainDeclared  = "plain, declared"
)

var (
	undeclared  = []string{schemaBare}
	allDebezium = []string{schemaBare, schemaDeclared, plainDeclared}
)

const (
	mayBeUnsigned = "a schema says int64 of a bigint unsigned too, and then a number below zero may be one above 2^63"
	digitsUnknown = "a schema does not say how many digits of a second a MySQL column shows"
	escaped       = "Debezium 3.6 writes a label as the DDL has it, y\\,z for y,z, and no record says that it did so"
	noText        = "Debezium's form does not say what SELECT shows: unclear, and the template is skipped by name"
)

var exceptions = []exception{
	{kind: harness.MySQL, routes: undeclared, keys: "col:users.", more: true, why: mayBeUnsigned},
	{kind: harness.MySQL, routes: undeclared, keys: "user:-", more: true, why: mayBeUnsigned},
	{kind: harness.MySQL, routes: undeclared, keys: "col:zoo.i64:", more: true, why: mayBeUnsigned},
	{kind: harness.MySQL, routes: undeclared, keys: "col:zoo.u64:", more: true, why: mayBeUnsigned},
	{kind: harness.MySQL, routes: undeclared, keys: "col:zoo.dtm:", more: true, why: digitsUnknown},
	{kind: harness.MySQL, routes: undeclared, keys: "col:zoo.dtm6:", more: true, why: digitsUnknown},
	{kind: harness.MySQL, routes: undeclared, keys: "col:zoo.tm:", more: true, why: digitsUnknown},
	{kind: harness.MySQL, routes: allDebezium, keys: "col:zoo.e:", more: true, why: escaped},
	{kind: harness.MySQL, routes: allDebezium, keys: "col:zoo.e2:", more: true, why: escaped},

	{kind: harness.Postgres, routes: allDebezium, keys: "col:zoo.iv:", lacks: true, why: noText},
	{kind: harness.Postgres, routes: []string{schemaDeclared, plainDeclared}, keys: "col:zoo.mny:", lacks: true, why: noText},
	{kind: harness.Postgres, routes: undeclared, keys: "col:zoo.mny:", lacks: true, more: true, why: "a schema calls money a decimal: it must be declared"},
	{kind: harness.Postgres, routes: undeclared, keys: "col:zoo.bt1:", lacks: true, more: true, why: "a schema calls a bit(1) a boolean: it must be declared"},
}

func find(kind harness.Kind, route, key string) *exception {
	for i := range exceptions {
		if e := &exceptions[i]; e.kind == kind && slices.Contains(e.routes, route) && strings.HasPrefix(key, e.keys) {
			return e
		}
	}
	return nil
}
