package volume

import (
	"os"
	"path/filepath"
	"testing"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
)

// entryOf is a directory as an entry of the one above it.
func entryOf(t *testing.T, dir string) confine.Entry {
	t.Helper()
	tree, err := confine.OpenTree(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	return tree.At(filepath.Base(dir))
}

func TestSubPathMakesWhatIsMissing(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o2775); err != nil {
		t.Fatal(err)
	}
	f, err := SubPath(entryOf(t, root), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := os.Stat(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a/b"} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || !info.IsDir() || info.Mode() != want.Mode() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	again, err := SubPath(entryOf(t, root), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSubPathFollowsNoLink(t *testing.T) {
	root := t.TempDir()
	outside := t.TempDir()
	for name, target := range map[string]string{"absolute": outside, "upward": "../..", "beside": "real", "dangling": filepath.Join(outside, "made")} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"absolute", "absolute/below", "upward/etc", "beside", "dangling", "dangling/below", "../x", "/x"} {
		f, err := SubPath(entryOf(t, root), sub)
		if code := hosterr.Of(err); code != hosterr.PathEscape && code != hosterr.InvalidArgument {
			t.Errorf("%s: %v, %v", sub, f, err)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
	f, err := SubPath(entryOf(t, root), "real")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
