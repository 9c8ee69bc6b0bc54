package mysql

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// role is what a server is in replication.
type role struct {
	known    bool // the account may ask
	replica  bool
	caughtUp bool   // its replication runs, and it has applied all that it has received
	state    string // for people
	filters  string // what it leaves out, for people
}

// role asks what the server is; where the account may not ask, it is guessed.
func (c *conn) role() (role, error) {
	rows, err := c.first(c.server.number.replicaQueries())
	if err == nil {
		return roleOf(rows), nil
	}
	if !isMyError(err) {
		return role{}, err
	}
	if !c.server.maria {
		return role{replica: isOn(c.server.vars["read_only"]), state: "the account may not ask: GRANT REPLICATION CLIENT"}, nil
	}
	pos, err := c.rows("SELECT @@GLOBAL.gtid_slave_pos, @@GLOBAL.gtid_binlog_pos")
	if err != nil {
		return role{}, err
	}
	return role{replica: c.server.guessReplica(pos[0][0], pos[0][1]), state: "the account may not ask: GRANT REPLICA MONITOR"}, nil
}

// guessReplica: it has applied what others wrote, and the latest in its log is not its own.
func (s *server) guessReplica(slavePos, binlogPos string) bool {
	own := false
	for part := range strings.SplitSeq(binlogPos, ",") {
		own = own || strings.Contains(part, "-"+s.id+"-")
	}
	return slavePos != "" && (isOn(s.vars["read_only"]) || !own)
}

func roleOf(channels []map[string]string) role {
	r := role{known: true, replica: len(channels) > 0, caughtUp: len(channels) > 0}
	for _, ch := range channels {
		get := func(name string) string {
			for _, n := range []string{name, strings.NewReplacer("Replica", "Slave", "Source", "Master").Replace(name)} {
				if v, ok := ch[n]; ok {
					return v
				}
			}
			return ""
		}
		io, sql := get("Replica_IO_Running"), get("Replica_SQL_Running")
		received := get("Source_Log_File") == get("Relay_Source_Log_File") && get("Read_Source_Log_Pos") == get("Exec_Source_Log_Pos")
		r.caughtUp = r.caughtUp && io == "Yes" && sql == "Yes" && received
		for _, name := range []string{"Replicate_Do_DB", "Replicate_Ignore_DB", "Replicate_Do_Table", "Replicate_Ignore_Table", "Replicate_Wild_Do_Table", "Replicate_Wild_Ignore_Table"} {
			if ch[name] != "" {
				r.filters = strings.TrimSpace(r.filters + " " + name + "=" + ch[name])
			}
		}
		r.state = strings.TrimSpace(fmt.Sprintf("IO %s, SQL %s %s%s", io, sql, get("Last_IO_Error"), get("Last_SQL_Error")))
	}
	return r
}

const logReplicatedHint = "set log_replica_updates=ON (log_slave_updates=ON) and restart it, or feed from the primary"

// clustered reports whether the server gets what others of its cluster wrote without being a replica (Galera, group replication).
func (s *server) clustered() bool {
	return isOn(s.vars["wsrep_on"]) || s.vars["group_replication_group_name"] != ""
}

// logsReplicated reports whether a replica writes what it applies into its own log.
func (s *server) logsReplicated() bool {
	return isOn(s.vars["log_replica_updates"]) || isOn(s.vars["log_slave_updates"])
}

// isMyError reports whether it is the server that refuses something.
func isMyError(err error) bool {
	_, ok := errors.AsType[*mysql.MyError](err)
	return ok
}
