// Package files does everything with the files of a sandbox that a client may ask for, always below a beneath.Root.
package files

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/beneath"
	"golang.org/x/sys/unix"
)

// temporaryPrefix starts the names of files being written; listings leave them out.
const temporaryPrefix = ".sandboxd-tmp-"

// depthMax bounds recursion into directories: each level holds a descriptor open.
const depthMax = 512

// Space is the part of the file system that a client may reach.
type Space struct {
	Root *beneath.Root
	// locks serialise conditional writes to one path; different paths rarely share one.
	locks [64]sync.Mutex
}

// NewSpace makes a space of a root.
func NewSpace(root *beneath.Root) *Space { return &Space{Root: root} }

// Info describes a file.
type Info struct {
	Name string
	// Path is absolute, links resolved except the last.
	Path string
	Stat unix.Stat_t
	// LinkTarget is set for symbolic links.
	LinkTarget string
}

// IsDirectory says whether it is a directory.
func (i *Info) IsDirectory() bool { return i.Stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsRegular says whether it is a plain file.
func (i *Info) IsRegular() bool { return i.Stat.Mode&unix.S_IFMT == unix.S_IFREG }

// IsLink says whether it is a symbolic link.
func (i *Info) IsLink() bool { return i.Stat.Mode&unix.S_IFMT == unix.S_IFLNK }

// ModifiedAt is when the contents changed last.
func (i *Info) ModifiedAt() time.Time { return time.Unix(i.Stat.Mtim.Unix()).UTC() }

// Mode is the permission bits with setuid, setgid and sticky.
func (i *Info) Mode() uint32 { return i.Stat.Mode & 0o7777 }

// ETag changes whenever the contents may have changed.
func (i *Info) ETag() string { return ETag(&i.Stat) }

// ETag makes an entity tag of what a write cannot leave alone.
func ETag(stat *unix.Stat_t) string {
	return fmt.Sprintf(`"%x-%x-%x-%x"`, stat.Ino, stat.Mtim.Nano(), stat.Ctim.Nano(), stat.Size)
}

// Stat describes what a path names; with follow, what a link in the last position leads to.
func (s *Space) Stat(name string, follow bool) (Info, error) {
	place, err := s.existing(name, follow)
	if err != nil {
		return Info{}, err
	}
	defer place.Close()
	return infoOf(place), nil
}

// existing resolves a path that must exist.
func (s *Space) existing(name string, follow bool) (*beneath.Place, error) {
	place, err := s.Root.Resolve(name, follow)
	if err != nil {
		return nil, err
	}
	if !place.Exists {
		place.Close()
		return nil, &fs.PathError{Op: "stat", Path: name, Err: unix.ENOENT}
	}
	return place, nil
}

func infoOf(place *beneath.Place) Info {
	info := Info{Name: path.Base(place.Path()), Path: place.Path(), Stat: place.Stat}
	if info.IsLink() {
		info.LinkTarget, _ = readLink(place.Directory(), place.Name)
	}
	return info
}

func readLink(directory int, name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(directory, name, buffer)
	if err != nil {
		return "", err
	}
	return string(buffer[:n]), nil
}

// Open opens a plain file for reading. A FIFO or device is refused without blocking on it.
func (s *Space) Open(name string) (*os.File, Info, error) {
	file, place, err := s.Root.OpenFile(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Info{}, err
	}
	defer place.Close()
	info := Info{Name: path.Base(place.Path()), Path: place.Path()}
	if err := unix.Fstat(int(file.Fd()), &info.Stat); err != nil {
		file.Close()
		return nil, Info{}, err
	}
	if !info.IsRegular() && !info.IsDirectory() {
		file.Close()
		return nil, Info{}, ErrNotRegular
	}
	return file, info, nil
}

// Entries lists a directory by name, each entry as lstat sees it. Files being written are left out.
func (s *Space) Entries(name string) ([]Info, error) {
	directory, info, err := s.openDirectory(name)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	return entriesOf(directory, info.Path)
}

func (s *Space) openDirectory(name string) (*os.File, Info, error) {
	file, info, err := s.Open(name)
	if err != nil {
		return nil, Info{}, err
	}
	if !info.IsDirectory() {
		file.Close()
		return nil, Info{}, &fs.PathError{Op: "open", Path: name, Err: unix.ENOTDIR}
	}
	return file, info, nil
}

// entriesOf reads an open directory; what vanishes meanwhile is left out.
func entriesOf(directory *os.File, at string) ([]Info, error) {
	names, err := directory.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	entries := make([]Info, 0, len(names))
	for _, name := range names {
		if strings.HasPrefix(name, temporaryPrefix) {
			continue
		}
		entry := Info{Name: name, Path: path.Join(at, name)}
		if err := unix.Fstatat(int(directory.Fd()), name, &entry.Stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue
		}
		if entry.IsLink() {
			entry.LinkTarget, _ = readLink(int(directory.Fd()), name)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// openChild opens an entry of an open directory without following a link.
func openChild(directory *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(directory.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path.Join(directory.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(fd), path.Join(directory.Name(), name)), nil
}

// visit is called for each entry below a directory with its path relative to it; it says whether to go into a directory.
type visit func(directory *os.File, relative string, entry *Info) (descend bool, err error)

// walk visits everything below an open directory, parents before children, by name. Directories that cannot be opened are
// visited but not entered.
func walk(directory *os.File, at, relative string, depth int, visit visit) error {
	if depth > depthMax {
		return ErrTooDeep
	}
	entries, err := entriesOf(directory, at)
	if err != nil {
		return err
	}
	for index := range entries {
		entry := &entries[index]
		name := path.Join(relative, entry.Name)
		descend, err := visit(directory, name, entry)
		if err != nil {
			return err
		}
		if !descend || !entry.IsDirectory() {
			continue
		}
		child, err := openChild(directory, entry.Name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue
		}
		err = walk(child, entry.Path, name, depth+1, visit)
		child.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Walk visits everything below a directory.
func (s *Space) Walk(name string, visit visit) error {
	directory, info, err := s.openDirectory(name)
	if err != nil {
		return err
	}
	defer directory.Close()
	return walk(directory, info.Path, "", 0, visit)
}

// WalkOpen visits everything below a directory that is open already.
func WalkOpen(directory *os.File, at string, visit visit) error {
	return walk(directory, at, "", 0, visit)
}
