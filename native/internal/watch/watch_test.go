package watch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/beneath"
)

func open(t *testing.T, recursive bool) (*Watch, string) {
	t.Helper()
	top, _ := filepath.EvalSymlinks(t.TempDir())
	os.Mkdir(top+"/sub", 0o755)
	root, err := beneath.New(top, "")
	if err != nil {
		t.Fatal(err)
	}
	w, err := Open(root, ".", recursive)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, top
}

// expect reads events until the wanted one comes; others before it are let pass.
func expect(t *testing.T, w *Watch, want Event) {
	t.Helper()
	limit := time.After(5 * time.Second)
	var seen []Event
	for {
		select {
		case event, ok := <-w.Events():
			if event == want {
				return
			}
			if !ok {
				t.Fatalf("watch ended with %v, want %+v", w.Err(), want)
			}
			seen = append(seen, event)
		case <-limit:
			t.Fatalf("no %+v among %+v", want, seen)
		}
	}
}

func TestEventsOfOneFile(t *testing.T) {
	w, top := open(t, false)
	name := top + "/a"
	os.WriteFile(name, []byte("x"), 0o644)
	expect(t, w, Event{Type: Create, Path: name})
	expect(t, w, Event{Type: Write, Path: name})
	os.Chmod(name, 0o600)
	expect(t, w, Event{Type: Attributes, Path: name})
	os.Rename(name, top+"/b")
	expect(t, w, Event{Type: Rename, Path: top + "/b", OldPath: name})
	os.Remove(top + "/b")
	expect(t, w, Event{Type: Remove, Path: top + "/b"})
}

func TestRecursiveWatchEntersNewDirectories(t *testing.T) {
	w, top := open(t, true)
	os.WriteFile(top+"/sub/a", []byte("x"), 0o644)
	expect(t, w, Event{Type: Create, Path: top + "/sub/a"})
	os.MkdirAll(top+"/new/deep", 0o755)
	expect(t, w, Event{Type: Create, Path: top + "/new", Directory: true})
	expect(t, w, Event{Type: Create, Path: top + "/new/deep", Directory: true})
	os.WriteFile(top+"/new/deep/f", []byte("x"), 0o644)
	expect(t, w, Event{Type: Create, Path: top + "/new/deep/f"})
	os.Rename(top+"/new", top+"/moved")
	expect(t, w, Event{Type: Rename, Path: top + "/moved", OldPath: top + "/new", Directory: true})
	os.WriteFile(top+"/moved/deep/g", []byte("x"), 0o644)
	expect(t, w, Event{Type: Create, Path: top + "/moved/deep/g"})
}

func TestMoveOutOfTheTreeIsARemoval(t *testing.T) {
	w, top := open(t, true)
	elsewhere := t.TempDir()
	os.Rename(top+"/sub", elsewhere+"/sub")
	expect(t, w, Event{Type: Remove, Path: top + "/sub", Directory: true})
	os.WriteFile(elsewhere+"/sub/secret", nil, 0o644)
	os.WriteFile(top+"/z", nil, 0o644)
	event := <-w.Events()
	if event.Path != top+"/z" {
		t.Fatalf("an event from outside: %+v", event)
	}
}

func TestWatchEndsWithItsDirectory(t *testing.T) {
	w, top := open(t, false)
	os.RemoveAll(top)
	for range w.Events() {
	}
	if !errors.Is(w.Err(), ErrRemoved) {
		t.Fatalf("ended with %v", w.Err())
	}
}

func TestCloseEndsQuietly(t *testing.T) {
	w, top := open(t, false)
	os.WriteFile(top+"/a", nil, 0o644)
	w.Close()
	for range w.Events() {
	}
	if w.Err() != nil {
		t.Fatal(w.Err())
	}
}

func TestWatchRefusesToLeaveTheRoot(t *testing.T) {
	top := t.TempDir()
	os.Symlink("/etc", top+"/out")
	root, _ := beneath.New(top, "")
	if _, err := Open(root, "out", false); !errors.Is(err, beneath.ErrEscapes) {
		t.Fatal(err)
	}
}
