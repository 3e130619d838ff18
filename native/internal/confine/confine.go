// Package confine opens paths that others name, without ever leaving the directory they are confined to.
package confine

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// Relative refuses a path that is not a plain relative one; it returns it cleaned.
func Relative(field, name string) (string, error) {
	if name == "" || len(name) > unix.PathMax-1 || strings.ContainsRune(name, 0) || path.IsAbs(name) {
		return "", hosterr.New(hosterr.InvalidArgument, "%s: %q is not a relative path", field, name)
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." {
			return "", hosterr.New(hosterr.PathEscape, "%s: %q leads outside", field, name)
		}
	}
	return path.Clean(name), nil
}

// Absolute refuses a path that is not absolute and clean of `..`; it returns it cleaned.
func Absolute(field, name string) (string, error) {
	if !path.IsAbs(name) || len(name) > unix.PathMax-1 || strings.ContainsRune(name, 0) {
		return "", hosterr.New(hosterr.InvalidArgument, "%s: %q is not an absolute path", field, name)
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." {
			return "", hosterr.New(hosterr.PathEscape, "%s: %q leads outside", field, name)
		}
	}
	return path.Clean(name), nil
}

// OpenAt is openat2 with its refusals turned into path-escape.
func OpenAt(dir *os.File, name string, flags int, mode uint32, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: resolve}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
		// EAGAIN is a rename that raced with the resolution; the kernel asks to try again.
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
			return nil, hosterr.New(hosterr.PathEscape, "%q leads outside %s: %v", name, dir.Name(), err)
		default:
			return nil, &os.PathError{Op: "openat2", Path: filepath.Join(dir.Name(), name), Err: err}
		}
	}
}

// ProcPath names an open descriptor as a path, for calls that take only paths.
func ProcPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
