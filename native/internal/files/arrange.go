package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"agent-sandbox.dev/native/internal/beneath"
	"golang.org/x/sys/unix"
)

// MakeDir makes a directory; with parents, also those before it, and an existing directory is success.
func (s *Space) MakeDir(name string, mode uint32, parents bool) (Info, error) {
	place, err := s.Root.Resolve(name, true)
	if err != nil {
		return Info{}, err
	}
	defer place.Close()
	if place.IsDirectory() && parents {
		return infoOf(place), nil
	}
	if place.Exists {
		return Info{}, fs.ErrExist
	}
	if parents {
		if err := place.MakeParents(0o755); err != nil {
			return Info{}, err
		}
	} else if place.ParentMissing() {
		return Info{}, fs.ErrNotExist
	}
	if err := unix.Mkdirat(place.Directory(), place.Name, mode); err != nil && (err != unix.EEXIST || !parents) {
		return Info{}, err
	}
	// The umask is not the client's.
	if err := chmodAt(place, mode); err != nil {
		return Info{}, err
	}
	return statPlace(place)
}

func chmodAt(place *beneath.Place, mode uint32) error {
	file, err := place.Open(unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Fchmod(int(file.Fd()), mode)
}

// Attributes are what SetAttributes changes; nil leaves alone.
type Attributes struct{ Mode, Uid, Gid *uint32 }

// SetAttributes changes mode and owner of what a path leads to.
func (s *Space) SetAttributes(name string, attributes Attributes) (Info, error) {
	file, place, err := s.Root.OpenFile(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Info{}, err
	}
	defer place.Close()
	defer file.Close()
	fd := int(file.Fd())
	if attributes.Uid != nil || attributes.Gid != nil {
		if err := unix.Fchown(fd, orUnchanged(attributes.Uid), orUnchanged(attributes.Gid)); err != nil {
			return Info{}, err
		}
	}
	if attributes.Mode != nil {
		if err := unix.Fchmod(fd, *attributes.Mode&0o7777); err != nil {
			return Info{}, err
		}
	}
	return statPlace(place)
}

func orUnchanged(id *uint32) int {
	if id == nil {
		return -1
	}
	return int(*id)
}

// Remove deletes what a path names; a link in the last position is deleted itself. Clearing the root keeps the root.
func (s *Space) Remove(name string, recursive bool) error {
	place, err := s.existing(name, false)
	if err != nil {
		return err
	}
	defer place.Close()
	if place.IsRoot() {
		if !recursive {
			return ErrRootRemoval
		}
		return clearDirectory(place.Directory(), ".")
	}
	if recursive {
		return removeAll(place.Directory(), place.Name)
	}
	flags := 0
	if place.IsDirectory() {
		flags = unix.AT_REMOVEDIR
	}
	err = unix.Unlinkat(place.Directory(), place.Name, flags)
	if err == unix.ENOTEMPTY || err == unix.EEXIST {
		return ErrNotEmpty
	}
	return err
}

func removeAll(directory int, name string) error {
	err := unix.Unlinkat(directory, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	if clearErr := clearDirectory(directory, name); clearErr != nil {
		if errors.Is(clearErr, unix.ENOTDIR) {
			return err
		}
		return clearErr
	}
	err = unix.Unlinkat(directory, name, unix.AT_REMOVEDIR)
	if err == unix.ENOENT {
		return nil
	}
	return err
}

func clearDirectory(directory int, name string) error {
	fd, err := unix.Openat(directory, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	opened := os.NewFile(uintptr(fd), name)
	defer opened.Close()
	names, err := opened.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, child := range names {
		if err := removeAll(fd, child); err != nil {
			return err
		}
	}
	return nil
}

// Move renames; across file systems it copies and removes.
func (s *Space) Move(from, to string, overwrite bool) (Info, error) {
	source, err := s.existing(from, false)
	if err != nil {
		return Info{}, err
	}
	defer source.Close()
	target, err := s.target(source, to)
	if err != nil {
		return Info{}, err
	}
	defer target.Close()
	if err := target.MakeParents(0o755); err != nil {
		return Info{}, err
	}
	err = rename(source, target, overwrite)
	if err == unix.EXDEV {
		if _, err := s.Copy(from, to, CopyOptions{Overwrite: overwrite, Recursive: true}); err != nil {
			return Info{}, err
		}
		if err := removeAll(source.Directory(), source.Name); err != nil {
			return Info{}, err
		}
	} else if err != nil {
		return Info{}, err
	}
	return statPlace(target)
}

// target resolves where something goes; it may not be inside what goes there.
func (s *Space) target(source *beneath.Place, to string) (*beneath.Place, error) {
	target, err := s.Root.Resolve(to, false)
	if err != nil {
		return nil, err
	}
	if source.IsRoot() || target.IsRoot() || strings.HasPrefix(target.Path(), source.Path()+"/") {
		target.Close()
		return nil, ErrIntoItself
	}
	return target, nil
}

func rename(source, target *beneath.Place, overwrite bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if overwrite {
		flags = 0
	}
	err := unix.Renameat2(source.Directory(), source.Name, target.Directory(), target.Name, flags)
	if err != unix.EINVAL && err != unix.ENOSYS || overwrite {
		return err
	}
	// Not every file system can refuse to replace in one step.
	var stat unix.Stat_t
	if unix.Fstatat(target.Directory(), target.Name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return unix.EEXIST
	}
	return unix.Renameat(source.Directory(), source.Name, target.Directory(), target.Name)
}

// List lists a directory down to a depth, parents before children, starting after a path relative to it.
func (s *Space) List(name string, depth, limit int, after string) (files []Info, next string, err error) {
	errFull := errors.New("page is full")
	last := ""
	err = s.Walk(name, func(_ *os.File, relative string, entry *Info) (bool, error) {
		deeper := strings.Count(relative, "/")+1 < depth
		if after != "" && !afterPath(relative, after) {
			// A directory on the way to where the last page ended must still be entered.
			return deeper && (relative == after || strings.HasPrefix(after, relative+"/")), nil
		}
		if len(files) == limit {
			return false, errFull
		}
		files = append(files, *entry)
		last = relative
		return deeper, nil
	})
	if err == errFull {
		return files, last, nil
	}
	return files, "", err
}

// afterPath compares two paths in the order of a walk: component by component.
func afterPath(one, other string) bool {
	a, b := strings.Split(path.Clean(one), "/"), strings.Split(path.Clean(other), "/")
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return len(a) > len(b)
}
