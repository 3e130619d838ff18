package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agent-sandbox.dev/native/internal/confine"
)

type thing struct {
	Name string `json:"name"`
}

func (t *thing) Check() error {
	if t.Name == "" {
		return errors.New("no name")
	}
	return nil
}

var writers = map[string]func(confine.Entry, any) error{"Write": Write, "Begin": func(name confine.Entry, content any) error {
	settled, err := Begin(name, content)
	if err != nil {
		return err
	}
	return settled()
}}

// open is a tree of its own and the shelf in it.
func open(t *testing.T) (*confine.Tree, *Shelf) {
	t.Helper()
	tree, err := confine.OpenTree(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	shelf, err := NewShelf(tree)
	if err != nil {
		t.Fatal(err)
	}
	return tree, shelf
}

// What a caller may rely on when it is answered: the file and its name are both on the disk. Write gives the name only to content that is there.
func TestSettledRecordsAreOnTheDisk(t *testing.T) {
	for writer, want := range map[string]string{"Write": "content before after name", "Begin": "before after content name"} {
		t.Run(writer, func(t *testing.T) {
			tree, _ := open(t)
			var reached []string
			step = func(point string) { reached = append(reached, strings.Fields(point)[0]) }
			defer func() { step = func(string) {} }()
			if err := writers[writer](tree.At("r.json"), thing{"new"}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(reached, " "); got != want {
				t.Fatalf("went %q, want %q", got, want)
			}
		})
	}
}

// A writer that is cut off before its record has its name leaves the old record; one that is cut off after that leaves the new one. What it left
// besides goes with Tidy.
func TestCutOffAroundTheRename(t *testing.T) {
	for writer, write := range writers {
		for at, want := range map[string]string{"before": "old", "after": "new"} {
			t.Run(writer+" "+at, func(t *testing.T) {
				tree, shelf := open(t)
				name := tree.At("r.json")
				if err := write(name, thing{"old"}); err != nil {
					t.Fatal(err)
				}
				cutOff(t, at, func() { _ = write(name, thing{"new"}) })
				if err := Tidy(tree.At()); err != nil {
					t.Fatal(err)
				}
				var found thing
				if err := shelf.Read(name, &found); err != nil || found.Name != want {
					t.Fatalf("found %q, %v; want %q", found.Name, err, want)
				}
				if entries, _ := tree.At().ReadDir(); len(entries) != 2 {
					t.Fatalf("left: %v", entries)
				}
			})
		}
	}
}

// cutOff runs a function until it reaches a point, as a kill would.
func cutOff(t *testing.T, at string, run func()) {
	t.Helper()
	step = func(reached string) {
		if strings.HasPrefix(reached, at) {
			panic("cut off")
		}
	}
	defer func() {
		step = func(string) {}
		if recover() == nil {
			t.Fatal("the point was not reached")
		}
	}()
	run()
}

// A record that cannot be read is absent, and kept under a name that tells which one it was.
func TestBadRecordsAreSetAside(t *testing.T) {
	for what, text := range map[string]string{"empty": "", "torn": `{"name":"a`, "garbage": "\x00\xff\x00", "another thing": `{"name":""}`, "a list": "[]"} {
		t.Run(what, func(t *testing.T) {
			tree, shelf := open(t)
			name := tree.At("kind", "r.json")
			if err := errors.Join(tree.At("kind").Mkdir(0o700), name.WriteFile([]byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := shelf.Read(name, &thing{}); !errors.Is(err, os.ErrNotExist) {
					t.Fatalf("want it absent, got %v", err)
				}
			}
			names, err := shelf.Names()
			if err != nil || len(names) != 1 || !strings.HasPrefix(names[0], "kind.r.json.bad-") {
				t.Fatalf("on the shelf: %v, %v", names, err)
			}
			if kept, _ := tree.At("bad", names[0]).ReadFile(recordBytesMax); string(kept) != text {
				t.Fatalf("kept %q", kept)
			}
		})
	}
}

// A link in a record's place is not followed: neither read through nor written through.
func TestLinksAreNotFollowed(t *testing.T) {
	tree, shelf := open(t)
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte(`{"name":"canary"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	name := tree.At("r.json")
	if err := name.Symlink(canary); err != nil {
		t.Fatal(err)
	}
	var found thing
	if err := shelf.Read(name, &found); err == nil || found.Name != "" {
		t.Fatalf("read through a link: %q, %v", found.Name, err)
	}
	if err := Write(name, thing{"mine"}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(canary); string(text) != `{"name":"canary"}` {
		t.Fatalf("written through a link: %s", text)
	}
}
