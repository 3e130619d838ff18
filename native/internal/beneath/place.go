package beneath

import (
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Place is where a path led: an open directory below the root and a name in it.
type Place struct {
	// Name is the last component; "." for the root itself.
	Name string
	// Exists says whether the name was there; Stat is then its lstat.
	Exists bool
	Stat   unix.Stat_t

	root    *Root
	dir     int
	names   []string
	missing []string
}

// Close releases the directory.
func (p *Place) Close() {
	if p.dir >= 0 {
		unix.Close(p.dir)
		p.dir = -1
	}
}

// IsRoot says whether the path named the root itself.
func (p *Place) IsRoot() bool { return p.Name == "." }

// IsDirectory says whether the place is an existing directory.
func (p *Place) IsDirectory() bool { return p.Exists && p.Stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// Directory is the descriptor of the directory that holds, or will hold, the name. It stays the Place's own.
func (p *Place) Directory() int { return p.dir }

// Path is the absolute path inside the file system, links resolved.
func (p *Place) Path() string {
	parts := append([]string{p.root.path}, p.names...)
	return path.Join(append(append(parts, p.missing...), p.Name)...)
}

// Relative is the path as the root sees it, with a leading slash.
func (p *Place) Relative() string { return p.root.Relative(p.Path()) }

// Open opens what the place names without following a link.
func (p *Place) Open(flags int, mode uint32) (*os.File, error) {
	if len(p.missing) > 0 {
		return nil, p.wrap("open", unix.ENOENT)
	}
	fd, err := unix.Openat(p.dir, p.Name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, p.wrap("open", err)
	}
	return os.NewFile(uintptr(fd), p.Path()), nil
}

// MakeParents makes the directories that are missing before the name.
func (p *Place) MakeParents(mode uint32) error {
	for len(p.missing) > 0 {
		name := p.missing[0]
		if err := unix.Mkdirat(p.dir, name, mode); err != nil && err != unix.EEXIST {
			return p.wrap("mkdir", err)
		}
		const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
		child, err := unix.Openat(p.dir, name, flags, 0)
		if err != nil {
			return p.wrap("mkdir", err)
		}
		unix.Close(p.dir)
		p.dir = child
		p.names = append(p.names[:len(p.names):len(p.names)], name)
		p.missing = p.missing[1:]
	}
	return nil
}

// ParentMissing says whether directories before the name do not exist.
func (p *Place) ParentMissing() bool { return len(p.missing) > 0 }

func (p *Place) wrap(operation string, err error) error {
	return &fs.PathError{Op: operation, Path: p.Path(), Err: err}
}

// OpenFile resolves and opens in one go, again if the path changed in between.
func (r *Root) OpenFile(name string, flags int, mode uint32) (*os.File, *Place, error) {
	for attempt := 1; ; attempt++ {
		place, err := r.Resolve(name, flags&unix.O_NOFOLLOW == 0)
		if err != nil {
			return nil, nil, err
		}
		file, err := place.Open(flags, mode)
		if err == nil {
			return file, place, nil
		}
		isLink := place.Exists && place.Stat.Mode&unix.S_IFMT == unix.S_IFLNK
		place.Close()
		if attempt == attemptsMax || !retryable(err) || isLink {
			return nil, nil, err
		}
	}
}
