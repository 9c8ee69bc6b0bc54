// Package sink turns a key into the copies that may hold its value, and deletes them all.
//
// The ring (Ring, Record, Topology) is the client's map: 160 points per unit of weight; a key belongs to the first point
// at or after its hash, wrapping. Other clients' rings are known by their kind (libmemcached, twemproxy, gomemcache), shown to be theirs by
// golden vectors. A copy is a (node, key text) pair: primary and every replica of the owner, under the record in force, its previous, and
// every record that a Topology was given as a former one, for the plain key and for key#1 … key#N of a hot one, each placed by
// its own hash. A key is deleted only at its owners, never at a substitute.
//
// Record, Topology and HotKeys are immutable once made, validated whole, and safe for concurrent use.
//
// sink/registry watches etcd or a file for them; sink/memcache speaks to the nodes; sink/memcachetest is an in-process
// memcached for unit tests and the embedded demo. The package knows no rows and no Kafka.
package sink
