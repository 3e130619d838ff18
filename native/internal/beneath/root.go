// Package beneath resolves untrusted paths below a directory, one component at a time, by descriptor.
//
// Invariant: no system call made here lets the kernel follow a symbolic link or a "..". Links are read as text and
// resolved by this package, so that a link swapped between two calls can only make a call fail, never leave the root.
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrEscapes says that a path leads outside the root.
var ErrEscapes = errors.New("path traversal outside sandbox root is forbidden")

// ErrInvalid says that a path can name nothing (it holds a NUL byte, or a component is too long).
var ErrInvalid = errors.New("path is not valid")

// linksMax bounds the links followed for one path; the kernel's own limit.
const linksMax = 40

// attemptsMax bounds how often a path is resolved again because it changed underfoot. A hostile loop that swaps links
// wins a single attempt at most half of the time, so that sixteen failures in a row mean a broken file system.
const attemptsMax = 16

// Root is a directory that untrusted paths are resolved below. It is safe for concurrent use and holds no descriptor,
// so that the directory may be deleted and made again while the daemon runs.
type Root struct {
	path string
	base string
}

// New makes a Root of an existing directory. Relative paths start at base, which is below the root; empty means the root.
func New(directory, base string) (*Root, error) {
	absolute, err := filepath.Abs(directory)
	if err != nil {
		return nil, err
	}
	if resolved, err := filepath.EvalSymlinks(absolute); err == nil {
		absolute = resolved
	}
	info, err := os.Stat(absolute)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", absolute)
	}
	root := &Root{path: absolute, base: absolute}
	if base != "" {
		if root.base, err = filepath.Abs(base); err != nil {
			return nil, err
		}
		if _, ok := root.below(root.base); !ok {
			return nil, fmt.Errorf("%s is not below %s", root.base, absolute)
		}
	}
	return root, nil
}

// Path is the root directory with its own links resolved.
func (r *Root) Path() string { return r.path }

// Base is where relative paths start.
func (r *Root) Base() string { return r.base }

// Relative names an absolute path inside the root as the root sees it, with a leading slash.
func (r *Root) Relative(absolute string) string {
	rest, ok := r.below(absolute)
	if !ok {
		return absolute
	}
	return "/" + rest
}

// below strips the root from an absolute, clean path; the rest has no leading slash and is empty for the root itself.
func (r *Root) below(absolute string) (string, bool) {
	if r.path == "/" {
		return strings.TrimPrefix(absolute, "/"), true
	}
	if absolute == r.path {
		return "", true
	}
	return strings.CutPrefix(absolute, r.path+"/")
}

// components turns a path given by a client into the components to walk from the root.
func (r *Root) components(name string) ([]string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return nil, ErrInvalid
	}
	clean := path.Clean(name)
	joined := path.Join(r.base, clean)
	if path.IsAbs(clean) {
		joined = clean
		if _, ok := r.below(clean); !ok {
			// An absolute path outside the root is taken to be rooted at it.
			joined = path.Join(r.path, clean)
		}
	}
	rest, ok := r.below(joined)
	if !ok {
		return nil, ErrEscapes
	}
	return split(rest), nil
}

func split(rest string) []string {
	parts := strings.Split(rest, "/")
	kept := parts[:0]
	for _, part := range parts {
		if part != "" && part != "." {
			kept = append(kept, part)
		}
	}
	return kept
}

// openDirectory opens the root itself, making it again if it was removed.
func (r *Root) openDirectory() (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Open(r.path, flags, 0)
	if err == unix.ENOENT {
		if err := os.MkdirAll(r.path, 0o755); err != nil {
			return -1, err
		}
		fd, err = unix.Open(r.path, flags, 0)
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: r.path, Err: err}
	}
	return fd, nil
}

// retryable says whether an error may come from a path that changed while it was being used.
func retryable(err error) bool {
	return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESTALE)
}
