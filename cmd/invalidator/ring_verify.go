package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"invalidator/sink"
)

const (
	// verifyShown is how many keys with another owner are shown.
	verifyShown = 10
	// verifyLine bounds a line of the file.
	verifyLine = 1 << 20
)

type ringVerifyCmd struct {
	Ring   string `help:"The ring record as a JSON file." type:"existingfile"`
	Config string `help:"Take the ring from where this configuration says." type:"existingfile" short:"c"`
	JSON   bool   `help:"One JSON object." name:"json"`
	File   string `arg:"" help:"Keys and the server that the application keeps each on: a line key<TAB>owner, or {\"key\": …, \"owner\": …}; - is standard input."`
}

// verified is --json.
type verified struct {
	Keys   int         `json:"keys"`
	Differ int         `json:"differ"`
	First  []elsewhere `json:"first"` // at most verifyShown
}

// elsewhere is a key that the application keeps on another server than the ring says.
type elsewhere struct {
	shownKey
	Line  int    `json:"line"`
	Owner string `json:"owner"` // the application's
	Shard string `json:"shard"` // the ring's
	Node  string `json:"node"`  // its primary
}

// Run compares every key. Anything that differs is exit code 1: deletes of those keys would go to the wrong node.
func (c ringVerifyCmd) Run(e *env) error {
	topology, _, err := ringLocateCmd{Ring: c.Ring, Config: c.Config}.view(e)
	if err != nil {
		return err
	}
	in := e.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	v, err := verifyOwners(topology, c.File, in)
	if err != nil {
		return err
	}
	if c.JSON {
		enc := json.NewEncoder(e.stdout)
		enc.SetEscapeHTML(false)
		err = enc.Encode(v)
	} else {
		err = v.print(e.stdout)
	}
	if err == nil && v.Differ > 0 {
		return errFailed
	}
	return err
}

func (v verified) print(w io.Writer) error {
	for _, d := range v.First {
		if _, err := fmt.Fprintf(w, "line %d: %s: the application has it on %s, the ring in shard %s, on %s\n", d.Line, sink.Show(d.Key), d.Owner, d.Shard, d.Node); err != nil {
			return err
		}
	}
	if v.Differ == 0 {
		_, err := fmt.Fprintf(w, "%d keys: every owner is the ring's\n", v.Keys)
		return err
	}
	_, err := fmt.Fprintf(w, "%d of %d keys (%.3g %%) have another owner than the ring says: their deletes would go to the wrong node (is the record's kind, and what stands beside it, that of the clients?)\n",
		v.Differ, v.Keys, 100*float64(v.Differ)/float64(v.Keys))
	return err
}

// verifyOwners reads the lines of source. A line that says no key and owner ends it.
func verifyOwners(t *sink.Topology, source string, in io.Reader) (verified, error) {
	shards := map[string]*sink.Shard{}
	for i := range t.Record().Shards {
		shards[t.Record().Shards[i].ID] = &t.Record().Shards[i]
	}
	v := verified{First: []elsewhere{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, verifyLine)
	for line := 1; lines.Scan(); line++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		key, owner, err := keyAndOwner(lines.Bytes())
		if err == nil {
			_, err = sink.CheckMetaKey(t.KeyPrefix() + key)
		}
		if err != nil {
			return v, fmt.Errorf("%s:%d: %w", source, line, err)
		}
		v.Keys++
		_, id := t.Locate(key)
		s := shards[id]
		if owner == s.ID || owner == s.Primary.Addr || owner == s.Server || owner == s.Name {
			continue
		}
		if v.Differ++; len(v.First) < verifyShown {
			v.First = append(v.First, elsewhere{showKey(key), line, owner, s.ID, s.Primary.Addr})
		}
	}
	if err := lines.Err(); err != nil {
		return v, fmt.Errorf("reading %s: %w", source, err)
	}
	if v.Keys == 0 {
		return v, fmt.Errorf("%s has no keys: nothing was compared", source)
	}
	return v, nil
}

// keyAndOwner reads a line. The key is as clients name it, without key_prefix; the owner a shard's id, its primary's address, or the
// server or name that stands for it in the clients' configuration.
func keyAndOwner(line []byte) (key, owner string, err error) {
	if line[0] != '{' {
		key, owner, _ = strings.Cut(strings.TrimSuffix(string(line), "\r"), "\t")
	} else {
		var l struct {
			Key       string `json:"key"`
			KeyBase64 string `json:"key_base64"`
			Owner     string `json:"owner"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return "", "", fmt.Errorf("reading the line as JSON: %w", err)
		}
		key, owner = l.Key, l.Owner
		if l.KeyBase64 != "" {
			b, err := base64.StdEncoding.DecodeString(l.KeyBase64)
			if err != nil {
				return "", "", fmt.Errorf("key_base64: %w", err)
			}
			key = string(b)
		}
	}
	if key == "" || owner == "" {
		return "", "", errors.New(`the line has no key and owner (write key<TAB>owner, or {"key": "user:1", "owner": "10.0.1.5:11211"})`)
	}
	return key, owner, nil
}
