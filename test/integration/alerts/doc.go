// Package alerts runs a fleet of real processes under a real Prometheus with the rules of deploy/prometheus, harms the fleet, and looks at
// what fires, what does not, and whether it ends. Only how long a rule waits is shortened: see -for.
package alerts
