package obs

import "runtime/debug"

// Version is the module's version, or the commit that the binary was built from.
func Version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range b.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return b.Main.Version
}
