package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/signal"
	"strconv"
	"syscall"

	"invalidator/internal/demo"
)

type demoCmd struct {
	Embedded bool `help:"Use no service: stand-ins for all of them run in this process."`
	Updates  int  `help:"Updates of each database whose latency is measured." default:"200"`

	Host           string `help:"Where the services of ./dev up are; the other flags are their ports." default:"127.0.0.1"`
	KafkaPort      int    `default:"19092" env:"KAFKA_PORT"`
	MysqlPort      int    `default:"13306" env:"MYSQL_PORT"`
	MariadbPort    int    `default:"13307" env:"MARIADB_PORT"`
	PostgresPort   int    `default:"15432" env:"POSTGRES_PORT"`
	EtcdPort       int    `default:"12379" env:"ETCD_PORT"`
	Memcached1Port int    `name:"memcached1-port" default:"21211" env:"MEMCACHED1_PORT"`
	Memcached2Port int    `name:"memcached2-port" default:"21212" env:"MEMCACHED2_PORT"`
	Memcached3Port int    `name:"memcached3-port" default:"21213" env:"MEMCACHED3_PORT"`
	Memcached4Port int    `name:"memcached4-port" default:"21214" env:"MEMCACHED4_PORT"`
}

// maxUpdates keeps a demo a demo.
const maxUpdates = 10_000

// Run plays the demo. Its story is on stdout; the parts' log goes to a file, or to stderr with --log-level debug.
func (c demoCmd) Run(e *env) error {
	if c.Updates < 1 || c.Updates > maxUpdates {
		return fmt.Errorf("--updates %d: use 1 to %d", c.Updates, maxUpdates)
	}
	o := demo.Options{Embedded: c.Embedded, Services: c.services(), Updates: c.Updates, Out: e.stdout}
	if e.log.Enabled(e.ctx, slog.LevelDebug) {
		o.Log = e.log
	}
	// A reader of the story who leaves (demo | head) must not kill the demo before it has removed what it made.
	signal.Ignore(syscall.SIGPIPE)
	err := demo.Run(e.ctx, o)
	switch {
	case errors.Is(err, demo.ErrFailed):
		return errFailed
	case errors.Is(err, context.Canceled) && e.ctx.Err() != nil:
		return errors.New("the demo was interrupted")
	}
	return err
}

func (c demoCmd) services() demo.Services {
	at := func(port int) string { return net.JoinHostPort(c.Host, strconv.Itoa(port)) }
	return demo.Services{
		Kafka: at(c.KafkaPort), MySQL: at(c.MysqlPort), MariaDB: at(c.MariadbPort), Postgres: at(c.PostgresPort), Etcd: at(c.EtcdPort),
		Memcached: [4]string{at(c.Memcached1Port), at(c.Memcached2Port), at(c.Memcached3Port), at(c.Memcached4Port)},
	}
}
