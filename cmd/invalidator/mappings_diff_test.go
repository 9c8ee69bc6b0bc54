package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const diffOld = `version: 1
team: profiles
pools: [user, page]
mappings:
  - name: user
    table: shop.users
    keys:
      - user:{id}
      - user:by-name:{name}
  - name: page
    table: shop.pages
    keys: ["page:{id}"]
`

const diffNew = `version: 1
team: profiles
pools: [user]
underivable: [feed]
mappings:
  - name: user
    table: shop.users
    keys:
      - key: user:{id}
        hot: 8
      - user:by-name:{name|lower}
      - user:by-email:{email|lower}
`

const diffText = `~ user:{id}  (profiles/user: shop.users)
    hot: 0 -> 8
    needs a replay: earlier changes deleted no copy from #1 on
~ user:by-name:{name|lower}  (profiles/user: shop.users)
    key: user:by-name:{name} -> user:by-name:{name|lower}
    warning: changes no longer delete the keys of user:by-name:{name}: first see that no client reads them
    needs a replay: earlier changes deleted the keys of user:by-name:{name} alone
+ user:by-email:{email|lower}  (profiles/user: shop.users)
    needs a replay: earlier changes deleted none of its keys
- page:{id}  (profiles/page: shop.pages)
    warning: changes no longer delete its keys: first see that no client reads them
+ feed:*
    underivable
    needs a flush: no row gives its keys, and promotions so far did not flush it
- page:*
    pool
    needs a flush: what is left in the caches grows old with nobody to delete it

After the merge, once every worker shows the new fingerprint:
    invalidator replay mapping profiles/user --since 24h
    invalidator flush pool feed
    invalidator flush pool page
`

func TestDiffOfFolders(t *testing.T) {
	code, stdout, stderr := invoke(t, map[string]string{"old/a.yaml": diffOld, "new/a.yaml": diffNew}, "mappings", "diff", "old", "new")
	if code != exitOK || stderr != "" {
		t.Errorf("exit code %d, stderr %s", code, stderr)
	}
	same(t, "stdout", stdout, diffText)
}

func TestDiffOfNothing(t *testing.T) {
	_, stdout, _ := invoke(t, map[string]string{"old/a.yaml": diffOld, "new/a.yaml": diffOld}, "mappings", "diff", "old", "new")
	same(t, "stdout", stdout, "no key family differs\n")
}

func TestDiffAsJSON(t *testing.T) {
	_, stdout, _ := invoke(t, map[string]string{"old/a.yaml": diffOld, "new/a.yaml": diffNew}, "mappings", "diff", "old", "new", "--json", "--max-ttl", "90m")
	first, _, _ := strings.Cut(stdout, "\n")
	same(t, "the first line", first, `{"change":"changed","family":"user:{id}","pool":"user","team":"profiles","mapping":"user","tables":["shop.users"],`+
		`"what":["hot: 0 -> 8"],"after_merge":"replay","why":"earlier changes deleted no copy from #1 on","command":"invalidator replay mapping profiles/user --since 1h30m"}`)
}

// A file that does not load must not look like one that is gone.
func TestDiffFailsWhereAFileDoesNotLoad(t *testing.T) {
	code, _, stderr := invoke(t, map[string]string{"old/a.yaml": diffOld, "new/a.yaml": "version: 1\n"}, "mappings", "diff", "old", "new")
	if code != exitFailed || !strings.Contains(stderr, `new/a.yaml:1:1: a mapping file has no field "team"`) {
		t.Errorf("exit code %d, stderr %s", code, stderr)
	}
}

func TestDiffOfGitRevisions(t *testing.T) {
	dir := folder(t, map[string]string{"sub/mappings.d/a.yaml": diffOld, "sub/mappings.d/notes.txt": "no mapping"})
	gitIn := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x.test")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	gitIn("init", "-q", "-b", "main")
	gitIn("add", ".")
	gitIn("commit", "-q", "-m", "old")
	if err := os.WriteFile(filepath.Join(dir, "sub/mappings.d/a.yaml"), []byte(diffNew), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, in, old, new string }{
		{"against the working folder", ".", "main:sub/mappings.d", "sub/mappings.d"},
		{"from a folder below", "sub", "main:./mappings.d", "mappings.d"},
		{"with a slash at the end", ".", "HEAD:sub/mappings.d/", "sub/mappings.d/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := invokeHere(t, filepath.Join(dir, c.in), "mappings", "diff", c.old, c.new)
			if code != exitOK || stderr != "" {
				t.Errorf("exit code %d, stderr %s", code, stderr)
			}
			same(t, "stdout", stdout, diffText)
		})
	}
	t.Run("what git does not know", func(t *testing.T) {
		for old, want := range map[string]string{
			"mian:sub/mappings.d": "git knows no revision mian here (",
			"main:mappings.d":     "revision main has no folder mappings.d (paths are from the top of the repository; ./mappings.d is from here)",
			"main":                "there is no folder main (a folder of a git revision is written as revision:path: main:mappings.d)",
		} {
			code, _, stderr := invokeHere(t, dir, "mappings", "diff", old, "sub/mappings.d")
			if code != exitMisuse || !strings.HasPrefix(stderr, "invalidator: "+want) {
				t.Errorf("%s: exit code %d, stderr %s", old, code, stderr)
			}
		}
	})
}
