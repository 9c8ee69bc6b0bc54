package main

import "gopkg.in/yaml.v3"

type configCmd struct{ configFlag }

// Run prints what the other commands would work with.
func (c configCmd) Run(e *env) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	enc := yaml.NewEncoder(e.stdout)
	enc.SetIndent(2)
	if err := enc.Encode(cfg); err != nil {
		return err
	}
	return enc.Close()
}
