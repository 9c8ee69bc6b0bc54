package mysql

import "testing"

// SHOW MASTER STATUS went with 8.4, and comparing texts takes 10 for less than 8 (E9).
func TestE9Versions(t *testing.T) {
	for text, want := range map[string]struct {
		v       version
		end     string
		replica string
	}{
		"8.0.36":                     {version{false, 8, 0}, "SHOW MASTER STATUS", "SHOW SLAVE STATUS"},
		"8.0.15-log":                 {version{false, 8, 0}, "SHOW MASTER STATUS", "SHOW SLAVE STATUS"},
		"8.4.0":                      {version{false, 8, 4}, "SHOW BINARY LOG STATUS", "SHOW REPLICA STATUS"},
		"9.1.0":                      {version{false, 9, 1}, "SHOW BINARY LOG STATUS", "SHOW REPLICA STATUS"},
		"10.0.1":                     {version{false, 10, 0}, "SHOW BINARY LOG STATUS", "SHOW REPLICA STATUS"},
		"10.6.18-MariaDB-log":        {version{true, 10, 6}, "SHOW MASTER STATUS", "SHOW ALL SLAVES STATUS"},
		"5.5.5-10.11.6-MariaDB":      {version{true, 10, 11}, "SHOW MASTER STATUS", "SHOW ALL SLAVES STATUS"},
		"11.4.2-MariaDB-ubu2404":     {version{true, 11, 4}, "SHOW MASTER STATUS", "SHOW ALL SLAVES STATUS"},
		"5.7.44":                     {version{false, 5, 7}, "SHOW MASTER STATUS", "SHOW SLAVE STATUS"},
		"a fork that says something": {version{}, "SHOW BINARY LOG STATUS", "SHOW REPLICA STATUS"},
	} {
		v := parseVersion(text)
		end, replica := v.endQueries(), v.replicaQueries()
		if v != want.v || end[0] != want.end || replica[0] != want.replica || len(end) != 2 || len(replica) != 2 {
			t.Errorf("%s: %+v, %q, %q", text, v, end, replica)
		}
	}
}
