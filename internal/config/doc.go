// Package config reads invalidator.yaml, the one file of every command; invalidator.example.yaml in the repository's root is
// its reference, and a test loads it.
//
// It guarantees that every error names file and line, that an unknown or doubled field is an error, and that every default
// is written out in the loaded value. Secrets come from ${VAR} in any scalar, or from a file, and are never printed.
//
// It refuses a file that is wrong in itself. What can only be known by asking a server is not its matter: a source in error
// is loud and alone. Sections are checked only as far as they are present; a command asks for those it needs.
package config
