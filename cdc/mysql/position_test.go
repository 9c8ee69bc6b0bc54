package mysql

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"

	"invalidator/cdc"
)

const someUUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

func mysqlGTID(gno int64, tag string) *gtid {
	var g gtid
	g.mysql.sid, g.mysql.gno = uuid.MustParse(someUUID), gno
	if tag != "" {
		g.mysql.tag = mysql.NewTag(tag)
	}
	return &g
}

func mariaGTID(domain, server uint32, seq uint64) *gtid {
	return &gtid{maria: mysql.MariadbGTID{DomainID: domain, ServerID: server, SequenceNumber: seq}}
}

// A position is read, moved and written again.
func TestPositionsMove(t *testing.T) {
	my, maria := &server{id: "x", gtid: true}, &server{id: "102", maria: true, gtid: true}
	for _, tc := range []struct {
		srv  *server
		from string
		add  []*gtid
		want string
	}{
		{my, someUUID + ":1-5", []*gtid{mysqlGTID(6, "")}, someUUID + ":1-6"},
		{my, someUUID + ":1-5", []*gtid{mysqlGTID(8, ""), mysqlGTID(7, "")}, someUUID + ":1-5:7-8"},
		{my, "", []*gtid{mysqlGTID(1, "")}, someUUID + ":1"},
		{my, someUUID + ":1-5:app:1-2", []*gtid{mysqlGTID(3, "app")}, someUUID + ":1-5:app:1-3"},
		{my, someUUID + ":1-5", []*gtid{{}}, someUUID + ":1-5"}, // a transaction without a GTID
		{maria, "0-1-5", []*gtid{mariaGTID(0, 1, 6)}, "0-1-6"},
		{maria, "0-1-5,7-1-1", []*gtid{mariaGTID(0, 2, 6)}, "0-2-6,7-1-1"}, // a failover: one entry a domain (E4)
		{maria, "0-1-5", []*gtid{mariaGTID(10, 1, 1), mariaGTID(7, 1, 1)}, "0-1-5,7-1-1,10-1-1"},
		{maria, "0-1-5", []*gtid{mariaGTID(0, 2, 3)}, "0-2-3"}, // out of order: the log's order counts
	} {
		tr, err := parsePosition(tc.srv, cdc.Position{GTIDSet: tc.from, ServerUUID: "x"})
		if err != nil {
			t.Errorf("%s: %v", tc.from, err)
			continue
		}
		for _, g := range tc.add {
			tr.ended(g, 100)
		}
		tr.file = "binlog.7"
		if p := tr.position(); p.GTIDSet != tc.want || p.ServerUUID != tc.srv.id || p.Pos != 100 {
			t.Errorf("%s: got %+v, want %s", tc.from, p, tc.want)
		}
	}
}

func TestPositionOfFiles(t *testing.T) {
	srv := &server{id: "x", vars: map[string]string{"gtid_mode": "OFF"}}
	tr, err := parsePosition(srv, cdc.Position{File: "binlog.3", Pos: 4, ServerUUID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	tr.ended(&gtid{}, 0) // an artificial event
	tr.ended(&gtid{}, 700)
	if p := tr.position(); p != (cdc.Position{File: "binlog.3", Pos: 700, ServerUUID: "x"}) {
		t.Errorf("got %+v", p)
	}
}

// An empty GTID set is a position too, and not one of a file.
func TestPositionOfAnEmptySet(t *testing.T) {
	srv := &server{id: "x", gtid: true}
	tr, err := parsePosition(srv, cdc.Position{ServerUUID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	tr.file, tr.pos = "binlog.1", 150
	if p := tr.position(); p != (cdc.Position{ServerUUID: "x"}) || tr.executed == nil {
		t.Errorf("got %+v", p)
	}
}

func TestPositionsOfAnotherKindAreRefused(t *testing.T) {
	my, maria := &server{gtid: true}, &server{maria: true, gtid: true}
	off := &server{vars: map[string]string{"gtid_mode": "OFF"}}
	for _, tc := range []struct {
		srv *server
		p   cdc.Position
	}{
		{my, cdc.Position{GTIDSet: "0-1-5"}}, {my, cdc.Position{LSN: "0/1"}}, {my, cdc.Position{GTIDSet: someUUID}},
		{maria, cdc.Position{GTIDSet: someUUID + ":1-5"}}, {maria, cdc.Position{File: "binlog.1", Pos: 4}},
		{off, cdc.Position{GTIDSet: someUUID + ":1-5"}},
	} {
		if tr, err := parsePosition(tc.srv, tc.p); err == nil {
			t.Errorf("%+v: taken as %v", tc.p, tr)
		}
	}
}

// The servers' own texts of error 1236: one number for many causes.
func TestDumpErrors(t *testing.T) {
	f := &Feeder{cfg: Config{Name: "shop", ServerID: 7}}
	at := cdc.Position{GTIDSet: someUUID + ":1-5"}
	for text, want := range map[string]string{
		"A slave with the same server_uuid/server_id as this slave has connected to the master; the first event 'binlog.000001' at 4":                    "another",
		"A replica with the same server_uuid/server_id as this replica has connected to the source; the first event '' at 4":                             "another",
		"Cannot replicate because the master purged required binary logs. Replicate the missing transactions from elsewhere":                             "gap",
		"The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the master has purged binary logs containing GTIDs that the slave": "gap",
		"Slave has more GTIDs than the master has, using the master's SERVER_UUID.":                                                                      "gap",
		"Could not find first log file name in binary log index file":                                                                                    "gap",
		"Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old":                                          "gap",
		"Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog":                                                "gap",
		"Client requested master to start replication from impossible position; position > file size":                                                    "gap",
		"bogus data in log event; the first event 'binlog.000002' at 150":                                                                                "gap",
		"log event entry exceeded max_allowed_packet; Increase max_allowed_packet on master":                                                             "packet",
		"something new": "other",
	} {
		err := f.classify(mysql.NewError(mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG, text), at)
		se := (*cdc.SourceError)(nil)
		if !errors.As(err, &se) {
			t.Fatalf("%s: %v", text, err)
		}
		got := "other"
		switch {
		case errors.Is(se, cdc.ErrGap):
			got = "gap"
		case strings.Contains(se.Error(), "another reader uses server_id 7"):
			got = "another"
		case strings.Contains(se.Hint, "max_allowed_packet"):
			got = "packet"
		}
		if got != want || se.Retry != (got == "another") || se.Hint == "" || se.At != at {
			t.Errorf("%s: taken as %s, %+v", text, got, se)
		}
	}
}

func TestServerIDs(t *testing.T) {
	a, b := deriveServerID("shop", 3_000_000_000), deriveServerID("orders", 3_000_000_000)
	if a == b || a < 3_000_000_000 || a != deriveServerID("shop", 3_000_000_000) {
		t.Errorf("got %d and %d", a, b)
	}
}

// What an account that may not ask takes for a replica.
func TestGuessReplica(t *testing.T) {
	for _, tc := range []struct {
		slave, binlog, readOnly string
		want                    bool
	}{
		{"", "0-2-5", "OFF", false}, {"", "", "OFF", false}, {"0-1-5", "0-1-5", "OFF", true}, {"0-1-5", "", "OFF", true},
		{"0-1-5", "0-2-6", "OFF", false}, {"0-1-5", "0-2-6", "ON", true}, {"0-1-5,7-1-1", "0-1-5,7-2-2", "OFF", false},
	} {
		s := &server{id: "2", maria: true, vars: map[string]string{"read_only": tc.readOnly}}
		if got := s.guessReplica(tc.slave, tc.binlog); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// The servers name the columns of a replica's state in old words and in new ones.
func TestRoles(t *testing.T) {
	old := map[string]string{"Slave_IO_Running": "Yes", "Slave_SQL_Running": "Yes", "Master_Log_File": "b.2", "Relay_Master_Log_File": "b.2",
		"Read_Master_Log_Pos": "100", "Exec_Master_Log_Pos": "100"}
	if r := roleOf([]map[string]string{old}); !r.replica || !r.caughtUp {
		t.Errorf("a healthy replica is %+v", r)
	}
	new := map[string]string{"Replica_IO_Running": "Yes", "Replica_SQL_Running": "Yes", "Source_Log_File": "b.2", "Relay_Source_Log_File": "b.2",
		"Read_Source_Log_Pos": "100", "Exec_Source_Log_Pos": "99"}
	if r := roleOf([]map[string]string{old, new}); !r.replica || r.caughtUp {
		t.Errorf("one that has still to apply is %+v", r)
	}
	if r := roleOf(nil); r.replica || r.caughtUp {
		t.Errorf("a primary is %+v", r)
	}
}

func TestClusters(t *testing.T) {
	for _, tc := range []struct {
		vars map[string]string
		want bool
	}{
		{map[string]string{"wsrep_on": "OFF", "group_replication_group_name": ""}, false}, {nil, false},
		{map[string]string{"wsrep_on": "ON"}, true}, {map[string]string{"group_replication_group_name": someUUID}, true},
	} {
		if got := (&server{vars: tc.vars}).clustered(); got != tc.want {
			t.Errorf("%v: %v", tc.vars, got)
		}
	}
}

func TestUndone(t *testing.T) {
	set := undoneBut(someUUID + ":1-4,3e11fa47-71ca-11e1-9e33-c80aa9429563:1-9:app:1-8")
	theirs, err := parseState("0-1-8,0-2-9,7-1-3,0-1-7")
	if err != nil {
		t.Fatal(err)
	}
	domains := undoneButState(theirs)
	for tx, want := range map[string]bool{someUUID + ":4": false, someUUID + ":7": true, "3e11fa47-71ca-11e1-9e33-c80aa9429563:app:9": true,
		"3e11fa47-71ca-11e1-9e33-c80aa9429563:9": false, "": true} {
		if got := set(&cdc.RowChange{Tx: tx}); got != want {
			t.Errorf("%s: %v", tx, got)
		}
	}
	for tx, want := range map[string]bool{"0-1-8": false, "0-1-9": true, "0-2-9": false, "7-1-3": false, "7-1-9": true, "0-3-1": true, "": true} {
		if got := domains(&cdc.RowChange{Tx: tx}); got != want {
			t.Errorf("%s: %v", tx, got)
		}
	}
}

func TestBytesBehind(t *testing.T) {
	logs := [][]string{{"binlog.000009", "100", "No"}, {"binlog.000010", "500", "No"}, {"binlog.000011", "70", "No"}}
	for at, want := range map[place]int64{{"binlog.000009", 40}: 630, {"binlog.000010", 500}: 70, {"binlog.000011", 70}: 0, {"binlog.000008", 4}: 670} {
		if got, err := bytesBehind(logs, at); got != want || err != nil {
			t.Errorf("%v: %d, %v; want %d", at, got, err, want)
		}
	}
	if _, err := bytesBehind(logs, place{}); err == nil {
		t.Error("a place without a file has a lag")
	}
}
