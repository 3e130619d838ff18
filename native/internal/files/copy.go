package files

import (
	"io"
	"io/fs"
	"os"

	"agent-sandbox.dev/native/internal/beneath"
	"golang.org/x/sys/unix"
)

// CopyOptions say how to copy.
type CopyOptions struct{ Overwrite, Recursive bool }

// Copied says what a copy made.
type Copied struct {
	Info         Info
	Files, Bytes uint64
}

// Copy copies a file, a link or a directory. Links are copied as links; devices, sockets and FIFOs are left out.
func (s *Space) Copy(from, to string, options CopyOptions) (Copied, error) {
	source, err := s.existing(from, false)
	if err != nil {
		return Copied{}, err
	}
	defer source.Close()
	target, err := s.target(source, to)
	if err != nil {
		return Copied{}, err
	}
	defer target.Close()
	if target.Exists && (!options.Overwrite || target.IsDirectory() != source.IsDirectory()) {
		return Copied{}, fs.ErrExist
	}
	if source.IsDirectory() && !options.Recursive {
		return Copied{}, ErrNeedsRecurse
	}
	if err := target.MakeParents(0o755); err != nil {
		return Copied{}, err
	}
	copied := Copied{}
	if err := copied.entry(source.Directory(), source.Name, &source.Stat, target); err != nil {
		return Copied{}, err
	}
	copied.Info, err = statPlace(target)
	return copied, err
}

func (c *Copied) entry(directory int, name string, stat *unix.Stat_t, target *beneath.Place) error {
	return c.into(directory, name, stat, target.Directory(), target.Name, 0)
}

// into copies one entry of a directory to a name in another.
func (c *Copied) into(from int, name string, stat *unix.Stat_t, to int, newName string, depth int) error {
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.regular(from, name, to, newName)
	case unix.S_IFLNK:
		return c.link(from, name, to, newName)
	case unix.S_IFDIR:
		return c.directory(from, name, stat, to, newName, depth)
	}
	return nil
}

func (c *Copied) regular(from int, name string, to int, newName string) error {
	fd, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(fd), name)
	defer source.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	temporary, err := openTemporary(to)
	if err != nil {
		return err
	}
	defer temporary.discard()
	n, err := io.Copy(temporary.file, source)
	if err != nil {
		return err
	}
	if err := unix.Fchmod(int(temporary.file.Fd()), stat.Mode&0o7777); err != nil {
		return err
	}
	c.Files++
	c.Bytes += uint64(n)
	return temporary.become(newName, false)
}

func (c *Copied) link(from int, name string, to int, newName string) error {
	target, err := readLink(from, name)
	if err != nil {
		return err
	}
	c.Files++
	err = unix.Symlinkat(target, to, newName)
	if err != unix.EEXIST {
		return err
	}
	hidden := temporaryName()
	if err := unix.Symlinkat(target, to, hidden); err != nil {
		return err
	}
	return unix.Renameat(to, hidden, to, newName)
}

func (c *Copied) directory(from int, name string, stat *unix.Stat_t, to int, newName string, depth int) error {
	if depth > depthMax {
		return ErrTooDeep
	}
	// Writable while it is filled; its own mode comes last.
	if err := unix.Mkdirat(to, newName, 0o700); err != nil && err != unix.EEXIST {
		return err
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	sourceFd, err := unix.Openat(from, name, flags, 0)
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(sourceFd), name)
	defer source.Close()
	targetFd, err := unix.Openat(to, newName, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(targetFd)
	c.Files++
	entries, err := entriesOf(source, name)
	if err != nil {
		return err
	}
	for index := range entries {
		entry := &entries[index]
		if err := c.into(sourceFd, entry.Name, &entry.Stat, targetFd, entry.Name, depth+1); err != nil {
			return err
		}
	}
	return unix.Fchmod(targetFd, stat.Mode&0o7777)
}
