// Package monitoring tests what deploy/ has for Prometheus and Grafana against the binary and the pages: every metric and label that a rule
// or a panel asks for is one that docs/REFERENCE.md has, which is made from the binary's registries; every rule leads to a heading of the
// runbook. What the rules do, promtool tests (./dev rules) and test/integration/alerts.
package monitoring
