package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"invalidator/internal/ui"
	"invalidator/mapping"
)

type mappingsDiffCmd struct {
	Old    string        `arg:"" help:"A folder of mapping files, or one in git as revision:path: main:mappings.d."`
	New    string        `arg:"" help:"The same, as it is to be."`
	MaxTTL time.Duration `help:"The caches' longest expiry (cache.max_ttl): how far back a replay has to go." default:"24h" name:"max-ttl"`
	JSON   bool          `help:"One JSON object a line and key family." name:"json"`
}

// changeLine is a line of --json. Its form is stable.
type changeLine struct {
	mapping.Change
	Command string `json:"command,omitempty"`
}

// Run prints what differs and what to do after the merge. A file that does not load is not compared, which fails.
func (c mappingsDiffCmd) Run(e *env) error {
	before, err := c.load(e, c.Old)
	if err != nil {
		return err
	}
	after, err := c.load(e, c.New)
	if err != nil {
		return err
	}
	changes := mapping.Diff(before.set, after.set)
	if c.JSON {
		for _, x := range changes {
			if err := writeJSON(e.stdout, changeLine{x, c.command(x)}); err != nil {
				return err
			}
		}
	} else if err := c.print(e.stdout, changes); err != nil {
		return err
	}
	if before.failed || after.failed {
		return errFailed
	}
	return nil
}

type loadedSet struct {
	set    *mapping.Set
	failed bool
}

// load reads a folder, or else a folder of a git revision. What is wrong in its files is told on stderr.
func (c mappingsDiffCmd) load(e *env, where string) (loadedSet, error) {
	err := isFolder(where)
	var set *mapping.Set
	var problems []mapping.Problem
	switch _, _, revision := strings.Cut(where, ":"); {
	case err == nil:
		set, problems, err = mapping.Load(where)
	case revision:
		set, problems, err = mappingsInGit(e.ctx, where)
	default:
		err = misuse{fmt.Errorf("%w (a folder of a git revision is written as revision:path: main:mappings.d)", err)}
	}
	if err != nil {
		return loadedSet{}, err
	}
	for _, p := range problems {
		if p.Severity == mapping.SeverityError {
			fmt.Fprintln(e.stderr, p)
		}
	}
	return loadedSet{set, mapping.HasErrors(problems)}, nil
}

// mappingsInGit reads the mapping files of revision:path out of the repository that holds the working folder.
func mappingsInGit(ctx context.Context, where string) (*mapping.Set, []mapping.Problem, error) {
	revision, folder, _ := strings.Cut(where, ":")
	if _, err := git(ctx, "rev-parse", "--verify", "--quiet", revision+"^{commit}"); err != nil {
		return nil, nil, unknownToGit(err, "git knows no revision "+revision+" here (write revision:path, as in main:mappings.d; a shallow clone has to fetch it first)")
	}
	names, err := git(ctx, "ls-tree", "--full-tree", "--name-only", "-z", where)
	if err != nil {
		return nil, nil, unknownToGit(err, fmt.Sprintf("revision %s has no folder %s (paths are from the top of the repository; ./%s is from here)", revision, folder, folder))
	}
	var files []*mapping.File
	var problems []mapping.Problem
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" || strings.HasPrefix(name, ".") {
			continue
		}
		full := strings.TrimSuffix(where, "/") + "/" + name
		if strings.HasSuffix(where, ":") { // the top of the repository
			full = where + name
		}
		text, err := git(ctx, "cat-file", "blob", full)
		if err != nil {
			return nil, nil, err
		}
		f, ps := mapping.Parse(full, []byte(text))
		problems = append(problems, ps...)
		if f != nil {
			files = append(files, f)
		}
	}
	set, ps := mapping.NewSet(files)
	return set, append(problems, ps...), nil
}

// unknownToGit says what git was asked for in vain, with its own words. That git could not be run is another error.
func unknownToGit(err error, what string) error {
	var said gitError
	switch {
	case !errors.As(err, &said):
		return err
	case said == "":
		return misuse{errors.New(what)}
	}
	return misuse{fmt.Errorf("%s: %w", what, said)}
}

// git runs git.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", gitError(strings.TrimSpace(string(failed.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("running git: %w", err)
	}
	return string(out), nil
}

// gitError is what git said; it may be nothing.
type gitError string

func (e gitError) Error() string { return string(e) }

// command is what to run once the new files are in force everywhere.
func (c mappingsDiffCmd) command(x mapping.Change) string {
	switch x.Need {
	case mapping.NeedReplay:
		since := c.MaxTTL.String()
		for _, nothing := range []string{"m0s", "h0m"} { // 24h0m0s is 24h
			if strings.HasSuffix(since, nothing) {
				since = since[:len(since)-2]
			}
		}
		return fmt.Sprintf("invalidator replay mapping %s/%s --since %s", x.Team, x.Mapping, since)
	case mapping.NeedFlush:
		return "invalidator flush pool " + x.Pool
	}
	return ""
}

func (c mappingsDiffCmd) print(w io.Writer, changes []mapping.Change) error {
	p := ui.New(w)
	var failed error
	p.Failed = func(err error) { failed = err }
	if len(changes) == 0 {
		p.Line("no key family differs")
		return failed
	}
	var commands []string
	for _, x := range changes {
		head := x.Family
		if x.Mapping != "" {
			head += "  (" + x.Team + "/" + x.Mapping + ": " + strings.Join(x.Tables, ", ") + ")"
		}
		switch x.Kind {
		case mapping.Added:
			p.Line("%s", p.Good("+ "+head))
		case mapping.Removed:
			p.Line("%s", p.Bad("- "+head))
		default:
			p.Line("%s", p.Bold("~ "+head))
		}
		for _, what := range x.What {
			p.Line("    %s", what)
		}
		for _, what := range x.Warnings {
			p.Line("    warning: %s", what)
		}
		if x.Need != mapping.NeedNothing {
			p.Line("    needs a %s: %s", x.Need, x.Why)
		}
		if cmd := c.command(x); cmd != "" && !slices.Contains(commands, cmd) {
			commands = append(commands, cmd)
		}
	}
	if len(commands) > 0 {
		p.Title("After the merge, once every worker shows the new fingerprint:")
	}
	for _, cmd := range commands {
		p.Line("    %s", cmd)
	}
	return failed
}
