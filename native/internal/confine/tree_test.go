package confine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// testTree is a tree in a directory of its own, reached by a link of root's, and a directory outside that nothing may touch.
func testTree(t *testing.T) (tree *Tree, outside string) {
	t.Helper()
	base := t.TempDir()
	for _, dir := range []string{"real", "real/tree", "outside"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outside = filepath.Join(base, "outside")
	if err := errors.Join(os.Symlink("real", filepath.Join(base, "link")), os.WriteFile(filepath.Join(outside, "file"), []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	tree, err := OpenTree(filepath.Join(base, "link/tree"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	if want := filepath.Join(base, "real/tree"); tree.Path() != want {
		t.Fatalf("the tree is at %s, want %s", tree.Path(), want)
	}
	return tree, outside
}

// Every method of an entry is tried with a link on the way, and with a link in its place: none of them reads or changes what the link leads to.
func TestEntriesFollowNoLink(t *testing.T) {
	tree, outside := testTree(t)
	if err := errors.Join(tree.At("dir").Symlink(outside), tree.At("file").Symlink(filepath.Join(outside, "file")), tree.At("own").WriteFile(nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	onTheWay := tree.At("dir/file")
	for what, attempt := range map[string]func() error{
		"open":           func() error { _, err := onTheWay.Open(unix.O_RDONLY, 0); return err },
		"open a link":    func() error { _, err := tree.At("file").Open(unix.O_RDWR, 0); return err },
		"open a path":    func() error { _, err := tree.At("file").Open(unix.O_PATH, 0); return err },
		"lstat":          func() error { _, err := onTheWay.Lstat(); return err },
		"statx":          func() error { _, err := onTheWay.Statx(); return err },
		"exists":         func() error { _, err := onTheWay.Exists(); return err },
		"read":           func() error { _, err := tree.At("file").ReadFile(100); return err },
		"list":           func() error { _, err := tree.At("dir").ReadDir(); return err },
		"write":          func() error { return onTheWay.WriteFile([]byte("x"), 0o600) },
		"mkdir":          func() error { return tree.At("dir/new").Mkdir(0o700) },
		"ensure dir":     func() error { return tree.At("dir").EnsureDir(0o700) },
		"ensure root's":  func() error { return tree.At("dir").EnsureRootDir(0o700, 0) },
		"ensure below":   func() error { return tree.At("dir/new").EnsureRootDir(0o700, 0) },
		"temporary":      func() error { _, err := tree.At("dir").MakeTempDir("x", 0o700); return err },
		"fifo":           func() error { return tree.At("dir/new").Mkfifo(0o600) },
		"link":           func() error { return tree.At("dir/new").Symlink("x") },
		"rename away":    func() error { return onTheWay.Rename(tree.At("taken")) },
		"rename to":      func() error { return tree.At("own").Rename(tree.At("dir/new")) },
		"remove":         func() error { return onTheWay.Remove() },
		"remove all":     func() error { return tree.At("dir/file").RemoveAll() },
		"through a path": func() error { return onTheWay.Through(func(name string) error { return os.Remove(name) }) },
	} {
		if err := attempt(); !hosterr.Is(err, hosterr.PathEscape) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A link itself can be replaced and removed.
	if err := errors.Join(tree.At("file").WriteFile([]byte("mine"), 0o600), tree.At("dir").RemoveAll()); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(outside)
	if text, _ := os.ReadFile(filepath.Join(outside, "file")); err != nil || len(entries) != 1 || string(text) != "secret" {
		t.Errorf("outside lies %v with %q, %v", entries, text, err)
	}
}

// A name that leads up stays in the tree or is refused.
func TestEntriesStayBelowTheirTree(t *testing.T) {
	tree, _ := testTree(t)
	for _, name := range []string{"..", "../outside/file", "a/../../outside/file"} {
		if f, err := tree.At(name).Open(unix.O_PATH, 0); err == nil {
			t.Errorf("%s led to %s", name, f.Name())
		}
	}
}

// Before a runtime gets a path, the path must lead to the directory that is held, by directories that only root can change.
func TestAssertPathRefusesADetour(t *testing.T) {
	tree, _ := testTree(t)
	if err := tree.AssertPath(); err != nil {
		t.Fatal(err)
	}
	above := filepath.Dir(tree.Path())
	for what, detour := range map[string]struct{ do, undo func() error }{
		"given away":    {func() error { return os.Chown(above, nobodys, nobodys) }, func() error { return os.Chown(above, 0, 0) }},
		"open to all":   {func() error { return os.Chmod(above, 0o777) }, func() error { return os.Chmod(above, 0o755) }},
		"itself opened": {func() error { return os.Chmod(tree.Path(), 0o777) }, func() error { return os.Chmod(tree.Path(), 0o755) }},
		"moved away":    {func() error { return os.Rename(above, above+".away") }, func() error { return os.Rename(above+".away", above) }},
		"another in its place": {
			func() error {
				return errors.Join(os.Rename(tree.Path(), tree.Path()+".away"), os.Mkdir(tree.Path(), 0o755))
			},
			func() error { return errors.Join(os.Remove(tree.Path()), os.Rename(tree.Path()+".away", tree.Path())) },
		},
	} {
		if err := detour.do(); err != nil {
			t.Fatal(err)
		}
		if err := tree.AssertPath(); !hosterr.Is(err, hosterr.PermissionDenied) {
			t.Errorf("%s: %v", what, err)
		}
		// What is reached by the descriptor is still the same directory.
		if err := errors.Join(tree.At("x").WriteFile(nil, 0o600), tree.At("x").Unlink()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := errors.Join(detour.undo(), tree.AssertPath()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// Of two that remove one name at once, one gets ErrNotExist.
func TestUnlinkTellsWhoTookIt(t *testing.T) {
	tree, _ := testTree(t)
	name := tree.At("once")
	if err := name.WriteFile(nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := name.Unlink(); err != nil {
		t.Fatal(err)
	}
	if err := name.Unlink(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the second: %v", err)
	}
	if err := name.Remove(); err != nil {
		t.Errorf("remove of what is not there: %v", err)
	}
}

// A name may begin with a dot; its directory is still its own.
func TestEntriesOfHiddenDirectories(t *testing.T) {
	tree, _ := testTree(t)
	name := tree.At(".hidden/file")
	if err := errors.Join(tree.At(".hidden").Mkdir(0o700), name.WriteFile([]byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(tree.Path(), ".hidden/file")); err != nil || string(text) != "x" {
		t.Errorf("found %q, %v", text, err)
	}
}

// What a call of a runtime pays for the check of its paths; twice for each.
func BenchmarkAssertPath(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "var/lib/host"), 0o755); err != nil {
		b.Fatal(err)
	}
	tree, err := OpenTree(filepath.Join(dir, "var/lib/host"))
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	for b.Loop() {
		if err := tree.AssertPath(); err != nil {
			b.Fatal(err)
		}
	}
}
