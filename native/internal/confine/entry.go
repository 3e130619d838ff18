package confine

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Strictly is how every name below a tree is looked up: not out of it, and through no link.
const Strictly = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Entry is a name below a tree, whether anything is there or not. Each method looks the name up once, by openat2 from the tree's descriptor:
// what it then makes, moves, changes or removes is named by a descriptor and at most one name in it.
type Entry struct {
	tree *Tree
	name string
}

// In is an entry below this one.
func (e Entry) In(parts ...string) Entry {
	return Entry{tree: e.tree, name: filepath.Join(append([]string{e.name}, parts...)...)}
}

// Dir is the directory that holds the entry.
func (e Entry) Dir() Entry {
	name := filepath.Dir(e.name)
	if name == "." {
		name = ""
	}
	return Entry{tree: e.tree, name: name}
}

// WithSuffix is the entry of the same directory with a longer name.
func (e Entry) WithSuffix(suffix string) Entry { return Entry{tree: e.tree, name: e.name + suffix} }

// Base is the last part of the name.
func (e Entry) Base() string { return filepath.Base(e.name) }

// Name is the whole name below the tree.
func (e Entry) Name() string { return e.name }

// Path is the absolute path, without a link in it: for messages, for runtimes, which take nothing else, and for comparing with the mount table.
func (e Entry) Path() string { return filepath.Join(e.tree.Path(), e.name) }

// Open opens what is there, or with O_CREAT makes it.
func (e Entry) Open(flags int, mode uint32) (*os.File, error) {
	name := e.name
	if name == "" {
		name = "."
	}
	return OpenAt(e.tree.dir, name, flags, mode, Strictly)
}

// OpenDir opens a directory for reading.
func (e Entry) OpenDir() (*os.File, error) { return e.Open(unix.O_RDONLY|unix.O_DIRECTORY, 0) }

// inDir runs a call on the directory that holds the entry.
func (e Entry) inDir(operation string, run func(dir int, base string) error) error {
	dir, err := e.Dir().Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		err := run(int(dir.Fd()), e.Base())
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: operation, Path: e.Path(), Err: err}
		}
		return nil
	}
}

// Through runs a call that takes only a path, such as umount2: the path leads through the descriptor of the directory that holds the entry.
func (e Entry) Through(run func(path string) error) error {
	dir, err := e.Dir().Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return run(ProcPath(dir) + "/" + e.Base())
}

// Lstat is what is there, a link itself included.
func (e Entry) Lstat() (stat unix.Stat_t, err error) {
	err = e.inDir("fstatat", func(dir int, base string) error {
		return unix.Fstatat(dir, base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	})
	return stat, err
}

// Statx is Lstat with the attributes that tell a mount.
func (e Entry) Statx() (stat unix.Statx_t, err error) {
	err = e.inDir("statx", func(dir int, base string) error {
		return unix.Statx(dir, base, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &stat)
	})
	return stat, err
}

// Exists is whether anything is there.
func (e Entry) Exists() (bool, error) {
	_, err := e.Lstat()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Mkdir makes a directory where nothing is.
func (e Entry) Mkdir(mode uint32) error {
	return e.inDir("mkdirat", func(dir int, base string) error { return unix.Mkdirat(dir, base, mode) })
}

// EnsureDir makes a directory, or finds one.
func (e Entry) EnsureDir(mode uint32) error {
	err := e.Mkdir(mode)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	dir, err := e.Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return dir.Close()
}

// EnsureRootDir makes a directory of root's with those above it that are missing, or finds it, and gives it a mode and a group.
func (e Entry) EnsureRootDir(mode uint32, gid int) error {
	dir, err := e.openRootDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	return setMode(dir, mode, gid)
}

// openRootDir walks from the tree's directory to the entry and refuses what others could change.
func (e Entry) openRootDir() (*os.File, error) {
	dir, err := e.tree.At().OpenDir()
	if err != nil {
		return nil, err
	}
	for _, part := range parts(e.name) {
		next, _, err := stepInto(dir, part, true)
		if err != nil {
			return nil, errors.Join(err, dir.Close())
		}
		_ = dir.Close()
		if next == nil {
			return nil, &os.PathError{Op: "open", Path: e.Path(), Err: unix.ELOOP}
		}
		dir = next
	}
	return dir, nil
}

// MakeTempDir makes a directory with a name of its own below the entry.
func (e Entry) MakeTempDir(prefix string, mode uint32) (Entry, error) {
	made := e.In(fmt.Sprintf("%s%016x", prefix, rand.Uint64()))
	return made, made.Mkdir(mode)
}

// Mkfifo makes a pipe with a name.
func (e Entry) Mkfifo(mode uint32) error {
	return e.inDir("mkfifoat", func(dir int, base string) error { return unix.Mkfifoat(dir, base, mode) })
}

// Symlink makes a link.
func (e Entry) Symlink(target string) error {
	return e.inDir("symlinkat", func(dir int, base string) error { return unix.Symlinkat(target, dir, base) })
}

// Rename gives what is there another name, and takes the place of what had that name.
func (e Entry) Rename(to Entry) error {
	return e.inDir("renameat", func(from int, base string) error {
		return to.inDir("renameat", func(dir int, toBase string) error { return unix.Renameat(from, base, dir, toBase) })
	})
}

// Link gives a file a second name.
func (e Entry) Link(to Entry) error {
	return e.inDir("linkat", func(from int, base string) error {
		return to.inDir("linkat", func(dir int, toBase string) error { return unix.Linkat(from, base, dir, toBase, 0) })
	})
}

// Unlink removes a file, a link or an empty directory. Of two that do it at once, one gets an error.
func (e Entry) Unlink() error {
	return e.inDir("unlinkat", func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if errors.Is(err, unix.EISDIR) {
			return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
		}
		return err
	})
}

// Remove is Unlink for what may have gone already.
func (e Entry) Remove() error {
	if err := e.Unlink(); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveAll removes what is there with all that is in it. os.RemoveAll goes by descriptor from its first directory on, and follows no link.
func (e Entry) RemoveAll() error {
	err := e.Through(os.RemoveAll)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// ReadDir is what a directory holds, by name.
func (e Entry) ReadDir() ([]os.DirEntry, error) {
	dir, err := e.OpenDir()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// ReadFile reads a file up to a bound. A fifo in its place does not make it wait.
func (e Entry) ReadFile(bytesMax int64) ([]byte, error) {
	f, err := e.Open(unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, bytesMax))
}

// WriteFile makes a file, in place of the one that was there.
func (e Entry) WriteFile(content []byte, mode uint32) error {
	if err := e.Remove(); err != nil {
		return err
	}
	f, err := e.Open(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
