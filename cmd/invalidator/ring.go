package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"invalidator/internal/app"
	"invalidator/sink"
)

type ringCmd struct {
	Locate ringLocateCmd `cmd:"" help:"Say which shard owns each key and where its copies are."`
	Verify ringVerifyCmd `cmd:"" help:"Compare the ring with where the application keeps its keys."`
}

type ringLocateCmd struct {
	Ring   string   `help:"The ring record as a JSON file." type:"existingfile"`
	Hot    string   `help:"Hot keys as a JSON file: {\"key\": {\"copies\": 8}}." type:"existingfile"`
	Config string   `help:"Take the ring and hot keys from where this configuration says." type:"existingfile" short:"c"`
	Base64 bool     `help:"The keys are given in base64, as key_base64 shows them." name:"base64"`
	JSON   bool     `help:"One JSON object a line and key." name:"json"`
	Keys   []string `arg:"" help:"Keys as clients name them."`
}

// located is a line of --json.
type located struct {
	shownKey
	Hash   int64       `json:"hash"`
	Shard  string      `json:"shard"`
	Copies []shownCopy `json:"copies"`
}

// Run answers for each key in the order given.
func (c ringLocateCmd) Run(e *env) error {
	topology, hot, err := c.view(e)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	failed := false
	for _, k := range c.Keys {
		k, err := c.key(k)
		if err == nil {
			_, err = sink.CheckMetaKey(topology.KeyPrefix() + k)
		}
		if err != nil {
			fmt.Fprintf(e.stderr, "invalidator: %v\n", err)
			failed = true
			continue
		}
		hash, shard := topology.Locate(k)
		l := located{showKey(k), hash, shard, showCopies(topology.AppendCopies(nil, k, hot.Copies(k)))}
		if c.JSON {
			if err := enc.Encode(l); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(e.stdout, "%s\n  shard %s, hash %d\n", sink.Show(l.Key), l.Shard, l.Hash)
		for _, cp := range l.Copies {
			fmt.Fprintf(e.stdout, "  %-21s %s\n", cp.Node, sink.Show(cp.Key))
		}
	}
	if failed {
		return errFailed
	}
	return nil
}

// key is a key as it was given.
func (c ringLocateCmd) key(given string) (string, error) {
	if !c.Base64 {
		return given, nil
	}
	b, err := base64.StdEncoding.DecodeString(given)
	if err != nil {
		return "", fmt.Errorf("key %q is not in base64: %w", given, err)
	}
	return string(b), nil
}

func (c ringLocateCmd) view(e *env) (*sink.Topology, *sink.HotKeys, error) {
	switch {
	case c.Config != "" && c.Ring != "":
		return nil, nil, errors.New("give --ring or --config, not both")
	case c.Config != "":
		cfg, err := configFlag{c.Config}.load()
		if err != nil {
			return nil, nil, err
		}
		return app.ReadRegistry(e.ctx, cfg, e.log)
	case c.Ring != "":
		return readRing(c.Ring, c.Hot)
	}
	return nil, nil, errors.New("which ring? (give --ring FILE or --config FILE)")
}

// readRing reads a ring record and, where hot is not empty, hot keys from files.
func readRing(ring, hot string) (*sink.Topology, *sink.HotKeys, error) {
	data, err := os.ReadFile(ring)
	if err != nil {
		return nil, nil, err
	}
	rec, err := sink.ParseRecord(ring, data)
	if err != nil {
		return nil, nil, err
	}
	t, err := sink.NewTopology(rec)
	if err != nil || hot == "" {
		return t, sink.NewHotKeys(0, nil), err
	}
	if data, err = os.ReadFile(hot); err != nil {
		return nil, nil, err
	}
	h, err := sink.ParseHotFile(hot, data, 0)
	return t, h, err
}
