package deploy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/version"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A variable that -X stamps and that is not there is stamped silently nowhere.
func TestWhatIsStampedIsThere(t *testing.T) {
	for _, path := range []string{"deploy/Dockerfile", "deploy/release.sh"} {
		stamps := stamp.FindAllStringSubmatch(read(t, path), -1)
		if len(stamps) != 2 {
			t.Errorf("%s stamps %q, want version and commit", path, stamps)
		}
		for _, s := range stamps {
			if pkg, name := s[1], s[2]; !hasVar(t, strings.TrimPrefix(pkg, "invalidator/"), name) {
				t.Errorf("%s stamps %s.%s, which is no variable of type string without a value", path, pkg, name)
			}
		}
	}
}

var stamp = regexp.MustCompile(`-X (\S+)\.(\w+)=`)

// hasVar finds var name string, with no value, in a package's folder.
func hasVar(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			d, ok := d.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR {
				continue
			}
			for _, s := range d.Specs {
				s := s.(*ast.ValueSpec)
				for _, n := range s.Names {
					if typ, ok := s.Type.(*ast.Ident); ok && n.Name == name && typ.Name == "string" && s.Values == nil {
						return true
					}
				}
			}
		}
	}
	return false
}

// The image is built by a Go that go.mod takes, is not root, holds nothing but what it needs, and names what it builds on by version.
func TestDockerfile(t *testing.T) {
	text := strings.ReplaceAll(read(t, "deploy/Dockerfile"), "\\\n", " ")
	stages := strings.Split(text, "\nFROM ")[1:]
	if len(stages) != 2 || !strings.HasPrefix(stages[1], "scratch\n") {
		t.Fatalf("%d stages; the last is not FROM scratch", len(stages))
	}
	asked := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "go.mod"))[1]
	image := regexp.MustCompile(`^--platform=\$BUILDPLATFORM golang:([0-9.]+) AS build\n`).FindStringSubmatch(stages[0])
	if image == nil || version.Compare("go"+image[1], version.Lang("go"+asked)) < 0 {
		t.Errorf("built by %q; go.mod asks for Go %s", image, asked)
	}
	for _, want := range []string{"\nUSER 65532:65532\n", "\nENTRYPOINT [\"/usr/local/bin/invalidator\"]", "\nVOLUME /tmp\n", "\nEXPOSE 8480\n"} {
		if !strings.Contains(stages[1], want) {
			t.Errorf("the image has no %q", want)
		}
	}
	for line := range strings.Lines(text) {
		if instruction, _, _ := strings.Cut(line, " "); instruction == "ADD" || strings.Contains(line, ":latest") {
			t.Errorf("%s: COPY and versions say what an image holds", line)
		}
	}
	if !strings.Contains(stages[0], "CGO_ENABLED=0") {
		t.Error("a binary that is linked to libraries does not run in an empty image")
	}
}
