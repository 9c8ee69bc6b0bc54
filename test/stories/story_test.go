package stories

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStories tells each story of testdata.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), "# ") {
				t.Errorf("%s does not say what it is about", file)
			}
			tell(t, file, string(text))
		})
	}
}

// tell runs a story to its end. Where it does not end well, the test has all that happened.
func tell(t *testing.T, file, text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if s, err := run(t, text); err != nil {
			t.Errorf("%s:%v\n\n%s\n\nwhat happened:\n%s\n%s", file, err, text, strings.Join(s.told, "\n"), s.log.String())
		}
	})
}

// run runs a story in a bubble. The error begins with the number of the line that did not go well, or with "end".
func run(t *testing.T, text string) (*stage, error) {
	s, err := newStage(t, text)
	if err == nil {
		err = s.play(text)
	}
	if err == nil {
		err = s.rest()
	}
	s.end()
	return s, err
}

// What is not so is found: a runner that sees nothing would have all stories end well.
func TestBadEndsAreFound(t *testing.T) {
	const began = "row x in s0\nrecord 1: s0=a,b s1=c,d\nw1 starts\nawait w1 owns the log\n"
	for name, c := range map[string]struct{ story, want string }{
		"a stale copy":              {began + "x changes\n10s pass\nb has x at version 0", "end: b has x at version 0, the row is at 1"},
		"a stale hot copy":          {began + "x has 1 hot copy\n10s pass\nr1 reads x#1\nx changes\n10s pass\nr1 fills it", "end: "},
		"what is expected":          {began + "every node has x\nexpect a has no x", "6: expect a has no x: a has x, at version 0"},
		"what is awaited":           {began + "await 1 committed", "5: await 1 committed: 0 are committed"},
		"a sentence that is none":   {began + "x explodes", "5: x explodes: there is no such sentence"},
		"a row that lies nowhere":   {"row x in s7\nrecord 1: s0=a,b", "1: row x in s7: of 100000 keys none lies in [{1 s7}]"},
		"a node of no record":       {began + "g freezes", "5: g freezes: no record of the story has node g"},
		"an epoch that goes back":   {began + "record 1: s0=b s1=c,d", "5: record 1: s0=b s1=c,d: its epoch is not above 1"},
		"a log that nobody commits": {began + "x changes\nw1 leaves", "end: no worker is left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if _, err := run(t, c.story); err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
			})
		})
	}
}

// sentences calls do with each line that says something, and its number.
func sentences(text string, do func(sentence string) error) error {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := do(line); err != nil {
			return fmt.Errorf("%d: %s: %w", i+1, line, err)
		}
	}
	return nil
}

// play has each sentence happen.
func (s *stage) play(text string) error {
	return sentences(text, func(sentence string) error {
		s.tell("> %s", sentence)
		synctest.Wait()
		return s.say(sentence)
	})
}

// say has one sentence happen.
func (s *stage) say(sentence string) error {
	for what, await := range map[string]bool{"expect ": false, "await ": true} {
		if condition, is := strings.CutPrefix(sentence, what); is {
			return s.expect(condition, await)
		}
	}
	v, words, err := find(verbs, sentence)
	if err != nil {
		return err
	}
	return v(s, words)
}

// form is a kind of sentence: words, of which those in capitals stand for others.
type form[F any] struct {
	text string
	do   F

	pattern *regexp.Regexp
}

// compile makes the patterns of forms.
func compile[F any](forms []form[F]) []form[F] {
	capitals := strings.NewReplacer(
		"NODE", `([a-h])`, "TEXT", `([x-z]\d*(?:#\d)?|f\d*)`, "ROW", `([x-z]\d*)`, "WORKER", `(w\d)`, "READER", `(r\d+)`, "TIME", `((?:[\d.]+(?:ms|s|m|h))+)`,
		"NUM", `(\d+)`, "ID", `([\w/-]+)`, "REST", `(.+)`)
	for i := range forms {
		forms[i].pattern = regexp.MustCompile("^" + capitals.Replace(forms[i].text) + "$")
	}
	return forms
}

// find gives the first form that a sentence has, and its words.
func find[F any](forms []form[F], sentence string) (do F, words []string, err error) {
	for i := range forms {
		if words := forms[i].pattern.FindStringSubmatch(sentence); words != nil {
			return forms[i].do, words[1:], nil
		}
	}
	return do, nil, errors.New("there is no such sentence")
}

// step is how far time goes on at once.
const step = 50 * time.Millisecond

// pass lets time go on.
func (s *stage) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(step, time.Until(end)))
		synctest.Wait()
		s.tick()
		synctest.Wait()
	}
}

// tell notes what happens.
func (s *stage) tell(format string, args ...any) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.told = append(s.told, fmt.Sprintf("%9.3f ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}
