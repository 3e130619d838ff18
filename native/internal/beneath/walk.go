package beneath

import (
	"io/fs"
	"path"

	"golang.org/x/sys/unix"
)

// walk is one resolution in progress: the directory reached, its name below the root, and what is still to be walked.
type walk struct {
	root    *Root
	fd      int
	names   []string
	pending []string
	links   int
	follow  bool
}

// Resolve walks a client's path. With follow, a link in the last position is resolved too. What does not exist is not an
// error: Place.Exists says so. The Place must be closed.
func (r *Root) Resolve(name string, follow bool) (*Place, error) {
	pending, err := r.components(name)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		place, err := r.resolveOnce(name, pending, follow)
		if err == nil || attempt == attemptsMax || !isSwap(err) {
			return place, err
		}
	}
}

// isSwap recognises the one error that only a concurrent change can cause: what was a link is one no more.
func isSwap(err error) bool {
	pathError, ok := err.(*fs.PathError)
	return ok && pathError.Op == "readlink" && pathError.Err == unix.EINVAL
}

func (r *Root) resolveOnce(name string, pending []string, follow bool) (*Place, error) {
	fd, err := r.openDirectory()
	if err != nil {
		return nil, err
	}
	w := &walk{root: r, fd: fd, pending: append([]string(nil), pending...), follow: follow}
	place, err := w.run()
	if err != nil {
		unix.Close(w.fd)
		return nil, w.explain(name, err)
	}
	return place, nil
}

func (w *walk) explain(name string, err error) error {
	if _, ok := err.(unix.Errno); ok {
		return &fs.PathError{Op: "resolve", Path: name, Err: err}
	}
	return err
}

func (w *walk) run() (*Place, error) {
	var stat unix.Stat_t
	for len(w.pending) > 0 {
		name := w.pending[0]
		w.pending = w.pending[1:]
		if name == ".." {
			if err := w.up(); err != nil {
				return nil, err
			}
			continue
		}
		child, err := unix.Openat(w.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			return w.missing(name)
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Fstat(child, &stat); err != nil {
			unix.Close(child)
			return nil, err
		}
		done, err := w.step(name, child, &stat)
		if done != nil || err != nil {
			return done, err
		}
	}
	return w.here()
}

// step looks at one component that exists; it returns a Place when the walk is over.
func (w *walk) step(name string, child int, stat *unix.Stat_t) (*Place, error) {
	last := len(w.pending) == 0
	kind := stat.Mode & unix.S_IFMT
	if kind == unix.S_IFLNK && (!last || w.follow) {
		unix.Close(child)
		return nil, w.link(name)
	}
	if last {
		unix.Close(child)
		return &Place{root: w.root, dir: w.fd, names: w.names, Name: name, Exists: true, Stat: *stat}, nil
	}
	if kind != unix.S_IFDIR {
		unix.Close(child)
		return nil, unix.ENOTDIR
	}
	unix.Close(w.fd)
	w.fd = child
	w.names = append(w.names, name)
	return nil, nil
}

// link puts the target of a link in front of what is still to be walked.
func (w *walk) link(name string) error {
	if w.links++; w.links > linksMax {
		return unix.ELOOP
	}
	target, err := readLink(w.fd, name)
	if err != nil {
		return &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	if !path.IsAbs(target) {
		w.pending = append(split(target), w.pending...)
		return nil
	}
	rest, ok := w.root.below(path.Clean(target))
	if !ok {
		return ErrEscapes
	}
	return w.restart(append(split(rest), w.pending...))
}

// up handles ".." in a link's target: the walk starts again without the last name, because a directory's own ".." could
// have been moved elsewhere.
func (w *walk) up() error {
	if len(w.names) > 0 {
		return w.restart(append(append([]string(nil), w.names[:len(w.names)-1]...), w.pending...))
	}
	if w.root.path == "/" {
		return nil
	}
	// Above the root, only a way straight back into it is accepted.
	outside := path.Join(append([]string{path.Dir(w.root.path)}, w.pending...)...)
	rest, ok := w.root.below(outside)
	if !ok {
		return ErrEscapes
	}
	return w.restart(split(rest))
}

func (w *walk) restart(pending []string) error {
	if w.links++; w.links > 2*linksMax {
		return unix.ELOOP
	}
	fd, err := w.root.openDirectory()
	if err != nil {
		return err
	}
	unix.Close(w.fd)
	w.fd, w.names, w.pending = fd, nil, pending
	return nil
}

// missing ends a walk at a name that does not exist; what follows it is kept for MakeParents.
func (w *walk) missing(name string) (*Place, error) {
	tail := append([]string{name}, w.pending...)
	for _, part := range tail {
		if part == ".." {
			return nil, unix.ENOENT
		}
	}
	return &Place{root: w.root, dir: w.fd, names: w.names, Name: tail[len(tail)-1], missing: tail[:len(tail)-1]}, nil
}

// here ends a walk at the directory reached, which happens when the path names the root or ends in "..".
func (w *walk) here() (*Place, error) {
	if len(w.names) == 0 {
		place := &Place{root: w.root, dir: w.fd, Name: ".", Exists: true}
		return place, unix.Fstat(w.fd, &place.Stat)
	}
	name := w.names[len(w.names)-1]
	if err := w.restart(append([]string(nil), w.names...)); err != nil {
		return nil, err
	}
	w.pending = w.pending[:len(w.pending)-1]
	if _, err := w.directory(); err != nil {
		return nil, err
	}
	w.pending = []string{name}
	return w.run()
}

// directory walks the rest, which must be plain directories.
func (w *walk) directory() (int, error) {
	for _, name := range w.pending {
		child, err := unix.Openat(w.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		unix.Close(w.fd)
		w.fd = child
		w.names = append(w.names, name)
	}
	return w.fd, nil
}

func readLink(dir int, name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buffer)
	if err != nil {
		return "", err
	}
	if n == 0 {
		return "", unix.ENOENT
	}
	return string(buffer[:n]), nil
}
