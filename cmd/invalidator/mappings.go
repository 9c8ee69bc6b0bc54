package main

import (
	"invalidator/mapping"
)

type mappingsCmd struct {
	Check  mappingsCheckCmd  `cmd:"" help:"Check the files of a folder, and with --config the live databases too."`
	Test   mappingsTestCmd   `cmd:"" help:"Check the files of a folder and run their tests."`
	Schema mappingsSchemaCmd `cmd:"" help:"Print the JSON Schema of mapping files, for editors."`
}

// defaultMappings is the folder where none is named.
const defaultMappings = "mappings.d"

type mappingsSchemaCmd struct{}

// Run prints the schema.
func (mappingsSchemaCmd) Run(e *env) error {
	_, err := e.stdout.Write(mapping.JSONSchema())
	return err
}
