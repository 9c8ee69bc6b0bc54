package obs

import "testing"

// A stamp counts before what Go recorded; a version without a commit is a version.
func TestVersionIsStamped(t *testing.T) {
	defer func(v, c string) { version, commit = v, c }(version, commit)
	for _, tc := range []struct{ version, commit, wantVersion, wantCommit string }{
		{"v1.2.3", "0123abc", "v1.2.3", "0123abc"},
		{"", "0123abc", "0123abc", "0123abc"},
		{"v1.2.3", "", "v1.2.3", ""}, // a test binary carries no commit
	} {
		version, commit = tc.version, tc.commit
		if v, c := Version(), Commit(); v != tc.wantVersion || c != tc.wantCommit {
			t.Errorf("stamped %q and %q: version %q, commit %q, want %q and %q", tc.version, tc.commit, v, c, tc.wantVersion, tc.wantCommit)
		}
	}
	version, commit = "", ""
	if v := Version(); v == "" {
		t.Error("without a stamp the version is empty")
	}
}
