//go:build ignore

// Command gomemcache prints the owner of each key on standard input, as gomemcache has it: a digit a key, its index among the servers.
// Usage: go run gomemcache.go SERVER [SERVER ...], each an IP address with a port of its own
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/bradfitz/gomemcache/memcache"
)

func main() {
	var servers memcache.ServerList
	if err := servers.SetServers(os.Args[1:]...); err != nil {
		panic(err)
	}
	index := map[string]int{}
	for i, s := range os.Args[1:] {
		index[s] = i
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		addr, err := servers.PickServer(in.Text())
		if err != nil {
			panic(err)
		}
		fmt.Print(index[addr.String()])
	}
}
