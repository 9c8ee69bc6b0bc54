package main

import (
	"fmt"
	"strings"
)

const head = `# Reference

Every key of the configuration and every metric, written by ` + "`go run ./internal/tools/reference`" + ` from the code; a test fails while this page says something else.

## Configuration

One file, ` + "`invalidator.yaml`" + `, for every command; [invalidator.example.yaml](../invalidator.example.yaml) shows it whole. An unknown or doubled key is an error. ` + "`${VAR}`" + ` in any value is taken from the environment.
Durations are written ` + "`30s`, `1m`, `24h`" + `; sizes ` + "`8MiB`, `64KiB`" + ` or a number of bytes; a secret is a text, mostly ` + "`${VAR}`, or `{file: path}`" + `. A key without a default is empty, and what that means stands beside it. A key in ` + "`name[]`" + ` belongs to each entry of a list.
`

const metricsHead = `
## Metrics

On ` + "`/metrics`" + ` of the admin listener, beside Go's own (` + "`go_…`" + `) and the process's (` + "`process_…`" + `). Values of labels are closed sets: words of ours, brokers, nodes, and names that the configuration and the mapping files have. A key of the cache never is one.
A histogram has ` + "`_bucket`, `_sum` and `_count`" + `.

| name | type | labels | shown by | meaning |
|---|---|---|---|---|
`

// render is the page.
func render(sections []section, metrics []metric) string {
	var b strings.Builder
	b.WriteString(head)
	for _, s := range sections {
		if s.paths[0] == "" {
			continue // it only has sections
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| key | type | default | meaning |\n|---|---|---|---|\n", s.pathsOf(), s.about)
		for _, k := range s.keys {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.name, k.kind, code(k.preset), cell(k.about))
		}
	}
	b.WriteString(metricsHead)
	for _, m := range metrics {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.name, strings.ToLower(m.kind.String()), strings.Join(m.labels, ", "), strings.Join(m.of, ", "), cell(m.help))
	}
	return b.String()
}

// cell is a text that stands in a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(text)
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
