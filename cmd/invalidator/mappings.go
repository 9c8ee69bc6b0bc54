package main

import (
	"invalidator/mapping"
)

type mappingsCmd struct {
	Check  mappingsCheckCmd  `cmd:"" help:"Check the files of a folder, and with --config the live databases too."`
	Test   mappingsTestCmd   `cmd:"" help:"Check the files of a folder and run their tests."`
	Diff   mappingsDiffCmd   `cmd:"" help:"Say which key families differ between two folders or git revisions, and what to do after the merge."`
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
