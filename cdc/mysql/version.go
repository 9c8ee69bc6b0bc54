package mysql

import (
	"strconv"
	"strings"
)

// version is a server's version as numbers; zero where its text says none.
type version struct {
	maria        bool
	major, minor int
}

// parseVersion reads what SELECT VERSION() gives. MariaDB may put "5.5.5-" before its own, for old clients.
func parseVersion(text string) version {
	v := version{maria: strings.Contains(strings.ToLower(text), "mariadb")}
	if v.maria {
		text = strings.TrimPrefix(text, "5.5.5-")
	}
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var err1, err2 error
	v.major, err1 = strconv.Atoi(major)
	v.minor, err2 = strconv.Atoi(minor)
	if err1 != nil || err2 != nil {
		return version{maria: v.maria}
	}
	return v
}

// atLeast compares numbers and not texts. A version that is not known is taken for a new one.
func (v version) atLeast(major, minor int) bool {
	return v.major == 0 || v.major > major || v.major == major && v.minor >= minor
}

// endQueries ask where the log ends: the one of that version first, then the other.
func (v version) endQueries() []string {
	const old, renamed = "SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"
	if v.maria || !v.atLeast(8, 2) {
		return []string{old, renamed}
	}
	return []string{renamed, old}
}

// replicaQueries ask whether the server is a replica.
func (v version) replicaQueries() []string {
	switch {
	case v.maria:
		return []string{"SHOW ALL SLAVES STATUS", "SHOW ALL REPLICAS STATUS"}
	case v.atLeast(8, 1):
		return []string{"SHOW REPLICA STATUS", "SHOW SLAVE STATUS"}
	}
	return []string{"SHOW SLAVE STATUS", "SHOW REPLICA STATUS"}
}

// readerQueries list who reads the log.
func (v version) readerQueries() []string {
	if v.maria || !v.atLeast(8, 1) {
		return []string{"SHOW SLAVE HOSTS", "SHOW REPLICAS"}
	}
	return []string{"SHOW REPLICAS", "SHOW SLAVE HOSTS"}
}
