package confine

import (
	"errors"
	"os"
	"path/filepath"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// Tree is a directory of root's that is held open. What is below it is reached from its descriptor, never by its path again.
type Tree struct{ dir *os.File }

// OpenTree holds a directory open. It is made where it is missing; one whose way others could lead elsewhere is refused, as by RootDir.
func OpenTree(name string) (*Tree, error) {
	dir, err := openWay(name, true)
	if err != nil {
		return nil, err
	}
	return &Tree{dir: dir}, nil
}

// Close lets go of the directory.
func (t *Tree) Close() error { return t.dir.Close() }

// Path is the directory's path without any link in it.
func (t *Tree) Path() string { return t.dir.Name() }

// At is the entry with a name below the directory; without parts, the directory itself.
func (t *Tree) At(parts ...string) Entry { return Entry{tree: t, name: filepath.Join(parts...)} }

// AssertPath refuses to go on unless the directory's path leads to the directory that is held, by directories of root's alone. It is asked before
// a runtime gets paths below the directory: a runtime takes nothing else, and looks them up by itself. It takes about five
// system calls for each part of the path.
func (t *Tree) AssertPath() error {
	elsewhere := hosterr.New(hosterr.PermissionDenied, "%s is not the directory that this program opened when it started", t.Path())
	dir, err := openWay(t.Path(), false)
	if errors.Is(err, os.ErrNotExist) {
		return elsewhere
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	var held, found unix.Stat_t
	if err := errors.Join(unix.Fstat(int(t.dir.Fd()), &held), unix.Fstat(int(dir.Fd()), &found)); err != nil {
		return err
	}
	if held.Dev != found.Dev || held.Ino != found.Ino {
		return elsewhere
	}
	return nil
}
