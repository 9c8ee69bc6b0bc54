package mapping

import _ "embed"

//go:embed schema.json
var jsonSchema []byte

// JSONSchema describes a mapping file to an editor: JSON Schema 2020-12. What the structure cannot say (a pool that is another
// team's, a filter that does not exist, a text that older YAML takes for a number) only the loader finds.
func JSONSchema() []byte { return jsonSchema }
