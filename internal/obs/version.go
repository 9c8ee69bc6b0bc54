package obs

import "runtime/debug"

// version and commit are stamped by a build that has no history at hand:
// -ldflags "-X invalidator/internal/obs.version=v1.2.3 -X invalidator/internal/obs.commit=…". Empty: what Go recorded.
var version, commit string

// Version is what the binary was stamped with; else the commit that it was built from, or its module's version.
func Version() string {
	if version != "" {
		return version
	}
	if c := Commit(); c != "" {
		return c
	}
	if b, ok := debug.ReadBuildInfo(); ok {
		return b.Main.Version
	}
	return "unknown"
}

// Commit is the commit that the binary was built from; empty: nobody said.
func Commit() string {
	if commit != "" {
		return commit
	}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
