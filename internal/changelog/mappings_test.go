package changelog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func mappingFile(name, text string) changelog.MappingFile {
	return changelog.MappingFile{Name: name, Team: "profiles", Text: text, Since: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), By: "w-1"}
}

// The story of a paused process: it looked at generation 9, others wrote 10 and 11, and then it wakes and writes what it had in
// force. What was in force after it stands, and the next write removes the rest.
func TestMappingFilesKeepTheHighestGeneration(t *testing.T) {
	s := openState(t, changelogtest.Start(t))
	ctx := t.Context()
	saved := func() changelog.SavedMapping { return load(t, s).LoadMappings("fleet")["a/b.yaml"] }
	must(t, s.PutMapping(ctx, "other", mappingFile("a/b.yaml", "another fleet's"), changelog.SavedMapping{}))
	for i := range 9 {
		must(t, s.PutMapping(ctx, "fleet", mappingFile("a/b.yaml", fmt.Sprintf("text %d <&\"\n\té\u2028", i)), saved()))
	}
	paused := saved()
	if want := (changelog.SavedMapping{MappingFile: mappingFile("a/b.yaml", "text 8 <&\"\n\té\u2028"), Generation: 9}); !cmp.Equal(paused, want) {
		t.Fatal(cmp.Diff(want, paused))
	}
	must(t, s.PutMapping(ctx, "fleet", mappingFile("a/b.yaml", "ten"), saved()))
	must(t, s.PutMapping(ctx, "fleet", mappingFile("a/b.yaml", "eleven"), saved()))
	must(t, s.PutMapping(ctx, "fleet", mappingFile("a/b.yaml", "late"), paused))
	now := saved()
	if now.Text != "eleven" || now.Generation != 11 || !cmp.Equal(now.Stale, []string{"mappings/fleet/a%2Fb.yaml/10"}) {
		t.Errorf("%+v", now)
	}
	gone := now.MappingFile
	gone.Gone = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	must(t, s.PutMapping(ctx, "fleet", gone, now))
	if now = saved(); now.Generation != 12 || !now.Gone.Equal(gone.Gone) || now.Text != "eleven" || len(now.Stale) != 0 {
		t.Errorf("%+v", now)
	}
	must(t, s.RemoveMapping(ctx, "fleet", now))
	if all := load(t, s).LoadMappings("fleet"); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
	if all := load(t, s).LoadMappings("other"); len(all) != 1 {
		t.Errorf("of another fleet: %+v", all)
	}
}

// A record that cannot be read is told with its place, whatever older generations say, and its file's next write comes after it.
func TestAnUnreadableMappingFileIsTold(t *testing.T) {
	good := `{"v":1,"file":"a.yaml","team":"x","generation":3,"since":"2026-11-30T10:00:00Z","by":"w","sha256":"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881","text":"x"}`
	for name, value := range map[string]string{
		"":                   good,
		"a newer version":    strings.Replace(good, `"v":1`, `"v":2`, 1),
		"an unknown field":   strings.Replace(good, `"v":1`, `"v":1,"more":1`, 1),
		"another text":       strings.Replace(good, `"text":"x"`, `"text":"y"`, 1),
		"somebody else's":    strings.Replace(good, "a.yaml", "b.yaml", 1),
		"another generation": strings.Replace(good, `"generation":3`, `"generation":2`, 1),
		"no JSON":            "version: 1",
		"nothing":            "",
	} {
		t.Run(name, func(t *testing.T) {
			s := openState(t, changelogtest.Start(t))
			must(t, s.PutMapping(t.Context(), "fleet", mappingFile("a.yaml", "older"), changelog.SavedMapping{}))
			must(t, s.PutMapping(t.Context(), "fleet", mappingFile("c.yaml", "c"), changelog.SavedMapping{}))
			must(t, s.Put(t.Context(), "mappings/fleet/a.yaml/3", []byte(value)))
			for _, odd := range []string{"mappings/fleet/a.yaml/x", "mappings/fleet/a.yaml/0", "mappings/fleet/a.yaml", "mappings/fleet/a.yaml/3/4"} {
				must(t, s.Put(t.Context(), odd, []byte(good)))
			}
			all := load(t, s).LoadMappings("fleet")
			a := all["a.yaml"]
			var bad *changelog.RecordError
			if name == "" {
				if a.Err != nil || a.Text != "x" {
					t.Errorf("a good one: %+v", a)
				}
			} else if !errors.As(a.Err, &bad) || bad.Key != "mappings/fleet/a.yaml/3" || a.Text != "" {
				t.Errorf("%+v", a)
			}
			if a.Name != "a.yaml" || a.Generation != 3 || !cmp.Equal(a.Stale, []string{"mappings/fleet/a.yaml/1"}) || all["c.yaml"].Text != "c" || len(all) != 2 {
				t.Errorf("%+v", all)
			}
			must(t, s.PutMapping(t.Context(), "fleet", mappingFile("a.yaml", "new"), a))
			if a = load(t, s).LoadMappings("fleet")["a.yaml"]; a.Text != "new" || a.Generation != 4 || len(a.Stale) != 0 {
				t.Errorf("after the next write: %+v", a)
			}
		})
	}
}

func TestMappingFileTooLarge(t *testing.T) {
	s := openState(t, changelogtest.Start(t))
	err := s.PutMapping(t.Context(), "fleet", mappingFile("a.yaml", strings.Repeat("x", changelog.DefaultMaxMessageBytes)), changelog.SavedMapping{})
	if !errors.Is(err, changelog.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
