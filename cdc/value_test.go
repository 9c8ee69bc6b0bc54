package cdc

import (
	"slices"
	"testing"
)

func TestValueText(t *testing.T) {
	for _, tt := range []struct {
		v     Value
		text  string
		known bool
	}{
		{Value{}, "", false},
		{Value{Kind: Null, S: "x"}, "", false},
		{Value{Kind: Unclear, S: "AZoo", Why: "base64 decimal without a scale"}, "", false},
		{Value{Kind: Text, S: ""}, "", true},
		{Value{Kind: Decimal, S: "500.00"}, "500.00", true},
		{Value{Kind: Bytes, S: "\x00\xff"}, "\x00\xff", true},
		{Value{Kind: Bytea, S: "\x00\xff\x10"}, `\x00ff10`, true},
		{MaybeOneOf("-1", "18446744073709551615"), "-1", true},
		{MaybeOneOf("12:00:00"), "12:00:00", true},
	} {
		if tt.v.Text() != tt.text || tt.v.Known() != tt.known {
			t.Errorf("%+v: %q, known %v; want %q, %v", tt.v, tt.v.Text(), tt.v.Known(), tt.text, tt.known)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, tt := range []struct {
		v    Value
		want []string
	}{
		{MaybeOneOf("-1", "18446744073709551615"), []string{"-1", "18446744073709551615"}},
		{Value{Kind: Text, S: "a"}, []string{"a"}},
		{Value{Kind: Bytea, S: "a"}, []string{`\x61`}},
		{Value{Kind: Null}, nil},
		{Value{}, nil},
	} {
		if got := tt.v.Candidates(); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q; want %q", tt.v, got, tt.want)
		}
	}
}

// What was not sent, or is not clear, is never known to be the same as before.
func TestValueEqual(t *testing.T) {
	null, empty, absent := Value{Kind: Null}, Value{Kind: Text}, Value{}
	unclear := Value{Kind: Unclear, S: "x"}
	for _, tt := range []struct {
		v, w Value
		want bool
	}{
		{null, null, true}, {null, empty, false}, {empty, empty, true}, {absent, absent, false}, {unclear, unclear, false},
		{Value{Kind: Text, S: "a"}, Value{Kind: Text, S: "A"}, false},
	} {
		if tt.v.Equal(tt.w) != tt.want || tt.w.Equal(tt.v) != tt.want {
			t.Errorf("%+v and %+v: want %v", tt.v, tt.w, tt.want)
		}
	}
}

func TestColumnsIndex(t *testing.T) {
	c := NewColumns([]Column{{Name: "id"}, {Name: "Key"}})
	if c.Index("Key") != 1 || c.Index("key") != -1 {
		t.Errorf("Key at %d, key at %d", c.Index("Key"), c.Index("key"))
	}
}
