package memcachetest

import "fmt"

// settings are what a memcached is told at its start, as far as the server knows it.
type settings struct {
	cas     bool // items have CAS values: no -C
	dumps   bool // no -X
	crawler bool // no -o no_lru_crawler
}

// readArgs reads arguments of a memcached.
func readArgs(args []string) (settings, error) {
	set := settings{cas: true, dumps: true, crawler: true}
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-C":
			set.cas = false
		case "-X":
			set.dumps = false
		case "-o":
			i++
			if i == len(args) || args[i] != "no_lru_crawler" {
				return set, fmt.Errorf("the in-process memcached knows of -o only no_lru_crawler: %q", args)
			}
			set.crawler = false
		default:
			return set, fmt.Errorf("the in-process memcached does not know %q; it knows -C, -X and -o no_lru_crawler", args[i])
		}
	}
	return set, nil
}
