package config

import "time"

// Config is invalidator.yaml.
type Config struct {
	Kafka    Kafka    `yaml:"kafka"`
	Cache    Cache    `yaml:"cache"`
	Mappings Mappings `yaml:"mappings"`
	Sources  []Source `yaml:"sources"`
	Storm    Storm    `yaml:"storm"`
	Replay   Replay   `yaml:"replay"`
	Admin    Admin    `yaml:"admin"`
}

// Kafka says where the log is.
type Kafka struct {
	Brokers     []string `yaml:"brokers"`      // host:port; at least one
	TLS         *TLS     `yaml:"tls"`          // absent: no TLS
	SASL        *SASL    `yaml:"sasl"`         // absent: no authentication
	Group       string   `yaml:"group"`        // the workers' consumer group; default "invalidator". The feeders of a source have <group>.feed.<source>
	InstanceID  string   `yaml:"instance_id"`  // of a worker: a static member of its group, with a name that no other has; default none
	TopicPrefix string   `yaml:"topic_prefix"` // of our own topics; default "invalidator"
	Replication int      `yaml:"replication"`  // of topics that we make; default 0: three, or the number of brokers if fewer
	Partitions  int      `yaml:"partitions"`   // of a change topic that we make; default 8
}

// TLS names the files of a TLS client. The server is always verified.
type TLS struct {
	CA         string `yaml:"ca"`          // PEM file; default: the system's
	Cert       string `yaml:"cert"`        // PEM file of a client certificate; default none
	Key        string `yaml:"key"`         // its key
	ServerName string `yaml:"server_name"` // default: the host that is dialled
}

// SASL is a Kafka login.
type SASL struct {
	Mechanism string `yaml:"mechanism"` // plain, scram-sha-256, scram-sha-512 or oauthbearer
	User      string `yaml:"user"`      // none with oauthbearer
	Password  Secret `yaml:"password"`  // with oauthbearer the token: mostly {file: path}, of a file that somebody keeps fresh
}

// Cache is the fleet of memcached nodes.
type Cache struct {
	MaxTTL   time.Duration `yaml:"max_ttl"`  // the longest expiry that any client sets; default 24h
	Settle   time.Duration `yaml:"settle"`   // from a round's last acknowledgement to the next round; default 1s
	Ring     Ring          `yaml:"ring"`     // where the ring record stands: file or etcd
	Protocol string        `yaml:"protocol"` // meta (default), or classic for proxies and old servers
	Node     Node          `yaml:"node"`
}

// Ring is where the cluster manager publishes: exactly one of File and Etcd.
type Ring struct {
	File    string `yaml:"file"`     // the ring record as a JSON file; default none
	HotFile string `yaml:"hot_file"` // hot keys as a JSON file; only with file; default none
	Etcd    *Etcd  `yaml:"etcd"`

	// Lag is how long a client may take to see a new ring record; default 1m. So long after a resize somebody may still carry values from
	// old owners to new ones.
	Lag time.Duration `yaml:"lag"`
}

// Etcd is the manager's etcd.
type Etcd struct {
	Endpoints []string `yaml:"endpoints"`  // host:port or URL
	Key       string   `yaml:"key"`        // of the ring record; default /cache/ring
	HotPrefix string   `yaml:"hot_prefix"` // begins the keys of hot keys; default /cache/hot/
	// OwedPrefix begins the keys that workers write: what each node owes. Default: owed/ beside Key, so /cache/owed/.
	OwedPrefix string `yaml:"owed_prefix"`

	User     string `yaml:"user"` // default: no login
	Password Secret `yaml:"password"`
	TLS      *TLS   `yaml:"tls"`
}

// Node bounds what one worker does with one node.
type Node struct {
	Connections int           `yaml:"connections"` // from one worker to one node; default 2
	Queue       Size          `yaml:"queue"`       // live keys waiting for one node, and an eighth of it in each other lane; default 8MiB
	Timeout     time.Duration `yaml:"timeout"`     // of each read and write; default 1s
	MaxLag      time.Duration `yaml:"max_lag"`     // a node that answers a live delete later leaves the live path, and is owed; default 2s
	TLS         *TLS          `yaml:"tls"`         // absent: no TLS
	User        string        `yaml:"user"`        // of nodes that run with -Y; default: no login
	Password    Secret        `yaml:"password"`    //
	NotFound    string        `yaml:"not_found"`   // what NOT_FOUND is: success (default), or verify for a proxy that answers it to what it only wrote down; with protocol classic
}

// Mappings is the teams' folder.
type Mappings struct {
	Dir string `yaml:"dir"` // of the mapping files; a relative path is from the config file's folder; default mappings.d
}

// Source is a database that we feed from (Type), or topics that somebody else feeds (Topics).
type Source struct {
	Name         string        `yaml:"name"`          // letters, digits, - and _; unique; Debezium's source.name
	Type         string        `yaml:"type"`          // mysql (MariaDB too) or postgres; empty with topics
	Hosts        []string      `yaml:"hosts"`         // host:port, tried in order
	User         string        `yaml:"user"`          //
	Password     Secret        `yaml:"password"`      //
	TLS          *TLS          `yaml:"tls"`           // absent: no TLS
	Database     string        `yaml:"database"`      // Postgres: the one database
	Publication  string        `yaml:"publication"`   // Postgres; default "invalidator"
	Slot         string        `yaml:"slot"`          // Postgres; default "invalidator_" and the name in lower case
	Standby      bool          `yaml:"standby"`       // Postgres 16 and newer: read from a standby; the publication is made on the primary
	Heartbeat    time.Duration `yaml:"heartbeat"`     // Postgres: how often a message is written into its log; default 0: never
	AllowPartial bool          `yaml:"allow_partial"` // Postgres: a publication that sends only some rows or columns is no error
	ServerID     uint32        `yaml:"server_id"`     // MySQL: ours as a replica; default 0: made from the name
	Include      []string      `yaml:"include"`       // schema.table patterns with * and ?; at least one
	TopicPrefix  string        `yaml:"topic_prefix"`  // change topics are <prefix>.<schema>.<table>; default the name
	MaxRecord    Size          `yaml:"max_record"`    // above it a row is written slim; default 1000KiB
	OnGap        string        `yaml:"on_gap"`        // stop (default): a gap stands until it is accepted; flush: it accepts itself, and asks for a flush
	Topics       *Topics       `yaml:"topics"`        //
	FirstStart   string        `yaml:"first_start"`   // latest, earliest or an RFC 3339 time; must be said with topics, else earliest

	MaxTTL, Settle time.Duration `yaml:"-"` // the cache's, for a source's check
}

// Topics are change topics that somebody else feeds.
type Topics struct {
	Pattern   string `yaml:"pattern"`   // a regular expression for whole topic names; its groups named schema, table and database say the table of a row that does not
	Format    string `yaml:"format"`    // debezium (default: JSON, with and without schema), avro, maxwell, unwrapped
	Binary    string `yaml:"binary"`    // Debezium's bytes as text: base64 (default), base64url, hex
	Table     string `yaml:"table"`     // unwrapped: schema.table of the rows, where they and the topic's name do not say it
	Connector string `yaml:"connector"` // unwrapped: mysql, mariadb or postgresql, where the rows do not say it

	// Snapshots has the rows that a snapshot reads (op r, an old connector's marked op c, Maxwell's bootstrap) count as changes, so
	// that each is a delete: to stand in for a flush. Default: they are ignored, and counted.
	Snapshots bool `yaml:"snapshots"`

	// Unavailable is the connector's unavailable.value.placeholder, which stands for a large value that the log did not have.
	// Default: Debezium's own.
	Unavailable string `yaml:"unavailable"`

	Registry *Registry `yaml:"registry"` // avro, and unwrapped rows that are Avro: where the schemas are; absent: none
}

// Registry is a schema registry.
type Registry struct {
	URL      URL    `yaml:"url"`  // of Confluent's API; of Apicurio: http://host:8080/apis/ccompat/v7
	User     string `yaml:"user"` // default: no login
	Password Secret `yaml:"password"`
	TLS      *TLS   `yaml:"tls"` // absent: the system's roots
}

// Replay bounds replays.
type Replay struct {
	Window time.Duration `yaml:"window"` // what a promotion replays; default 30s
	Flush  Flush         `yaml:"flush"`
}

// Flush is how flushes go where who asks for one does not say it.
type Flush struct {
	Prometheus URL           `yaml:"prometheus"` // where a load is asked for that is a PromQL expression: http://host:9090; default: nowhere, so such a flush is refused
	Pace       int           `yaml:"pace"`       // copies that are deleted a second, of all nodes together; default 10000
	Refill     time.Duration `yaml:"refill"`     // for which the load must be below its limit before the next part begins; whole seconds; default 10s
}

// Storm says what is too much of a pool at once, and at what pace it is deleted then, where the pool's mapping file does not say it. It is of all
// workers together.
type Storm struct {
	Rows *int `yaml:"rows"` // rows of one transaction that are deleted at once; default 10000; 0: all
	Rate int  `yaml:"rate"` // keys of a pool that are deleted at once, a second; default 0: no limit
	Pace int  `yaml:"pace"` // keys of a pool's storm that are deleted a second; default 5000
}

// Admin is the HTTP listener for metrics and health, and of a worker for requests that delete something.
type Admin struct {
	Listen    string    `yaml:"listen"`     // default empty: none
	Token     Secret    `yaml:"token"`      // of requests that delete something; default none: they are refused
	ReadToken Secret    `yaml:"read_token"` // of all others but /-/healthy and /-/ready; token will do too; default none: whoever reaches the listener may read
	Remote    bool      `yaml:"remote"`     // requests that delete something are also taken from other machines; default: from this one alone
	TLS       *AdminTLS `yaml:"tls"`        // absent: no TLS
	PProf     bool      `yaml:"pprof"`      // /debug/pprof/ is served; it shows what is in memory, keys and secrets too
}

// AdminTLS names the files of the admin listener, which are read again at each handshake.
type AdminTLS struct {
	Cert     string `yaml:"cert"`      // PEM file of the certificate, and those between it and its root
	Key      string `yaml:"key"`       // its key
	ClientCA string `yaml:"client_ca"` // PEM file: whoever has no certificate of these authorities is given /-/healthy and /-/ready alone; default none
}
