// Command refresh is a small job that rebuilds the values of keys whose mapping says action: refresh. Copy it, and put your
// own rendering in place of build.
//
//	go run ./examples/refresh --brokers 127.0.0.1:9092 --ring ring.json
//
// It is a reader that comes first: it takes a lease on every copy of the key, builds the value, and fills under that lease. A change
// that commits while it builds voids the lease and brings a request of its own, so that an old value is never left. Where a
// reader was faster, nothing is built. Where building fails, the lease is given back, and the next reader does what it would
// do without the job.
//
// It wants readers that speak meta and heed its flags, since a lease's placeholder is an empty value to others. It reads the
// ring once, and leaves the copies of hot keys to their readers.
package main
