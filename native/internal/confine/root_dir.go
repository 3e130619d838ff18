package confine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// linksMax bounds the links on the way to a directory, as the kernel does.
const linksMax = 40

// RootDir makes a directory with all above it, or finds it, and gives it a mode and a group. It refuses a way that anybody but root could lead
// elsewhere: what we read, write or hand to a runtime below such a directory would be of their choice.
func RootDir(name string, mode uint32, gid int) error {
	dir, err := openWay(name, true)
	if err != nil {
		return err
	}
	defer dir.Close()
	return setMode(dir, mode, gid)
}

func setMode(dir *os.File, mode uint32, gid int) error {
	fd := int(dir.Fd())
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	// Most calls find what an earlier one made.
	if stat.Gid == uint32(gid) && stat.Mode&0o7777 == mode {
		return nil
	}
	return errors.Join(unix.Fchown(fd, 0, gid), unix.Fchmod(fd, mode))
}

// openWay opens a directory, one part of its path after the other. Its name is then the path without links.
func openWay(name string, create bool) (*os.File, error) {
	dir, err := openRoot()
	if err != nil {
		return nil, err
	}
	pending, links := parts(name), 0
	for len(pending) > 0 {
		next, target, err := stepInto(dir, pending[0], create)
		if err != nil {
			return nil, errors.Join(err, dir.Close())
		}
		pending = pending[1:]
		if next != nil {
			_ = dir.Close()
			dir = next
			continue
		}
		if links++; links > linksMax {
			return nil, errors.Join(&os.PathError{Op: "open", Path: name, Err: unix.ELOOP}, dir.Close())
		}
		pending = append(parts(target), pending...)
		if filepath.IsAbs(target) {
			_ = dir.Close()
			if dir, err = openRoot(); err != nil {
				return nil, err
			}
		}
	}
	return dir, nil
}

func openRoot() (*os.File, error) {
	return os.OpenFile("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func parts(name string) []string {
	return strings.FieldsFunc(filepath.Clean(name), func(r rune) bool { return r == '/' })
}

// stepInto opens one directory of the way, makes it where it is missing and may be made, or reads the link that is in its place.
func stepInto(dir *os.File, part string, create bool) (next *os.File, target string, err error) {
	name := filepath.Join(dir.Name(), part)
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), part, flags, 0)
	if create && errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(int(dir.Fd()), part, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, "", &os.PathError{Op: "mkdirat", Path: name, Err: err}
		}
		fd, err = unix.Openat(int(dir.Fd()), part, flags, 0)
		if err == nil {
			err = unix.Fchmod(fd, 0o755)
		}
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		target, err := linkOfRoot(dir, part, name)
		return nil, target, err
	}
	if err != nil {
		return nil, "", &os.PathError{Op: "openat", Path: name, Err: err}
	}
	next = os.NewFile(uintptr(fd), name)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, "", errors.Join(err, next.Close())
	}
	if err := assertRoots(name, stat); err != nil {
		return nil, "", errors.Join(err, next.Close())
	}
	return next, "", nil
}

// linkOfRoot reads a link that root made. The directory that it lies in was found to be root's.
func linkOfRoot(dir *os.File, part, name string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), part, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", &os.PathError{Op: "fstatat", Path: name, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK || stat.Uid != 0 {
		return "", hosterr.New(hosterr.PermissionDenied, "%s is neither a directory nor a link of root's", name)
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), part, text)
	if err != nil {
		return "", &os.PathError{Op: "readlinkat", Path: name, Err: err}
	}
	return string(text[:n]), nil
}

// assertRoots refuses a directory whose entries others can replace. In one with the sticky bit, as /tmp, they cannot replace root's.
func assertRoots(name string, stat unix.Stat_t) error {
	if stat.Uid != 0 {
		return hosterr.New(hosterr.PermissionDenied, "%s belongs to user %d, who could put something else in its place; give it to root or choose another directory", name, stat.Uid)
	}
	if stat.Mode&0o022 != 0 && stat.Mode&unix.S_ISVTX == 0 {
		return hosterr.New(hosterr.PermissionDenied, "%s can be written by others (mode %04o), who could put something else below it; close it with: chmod go-w %s", name, stat.Mode&0o7777, name)
	}
	return nil
}
