package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// Caller is the process that names paths in verbs: its user, and the one directory that its paths are looked up in.
type Caller struct {
	Dir      string
	UID, GID int
}

// OpenFile opens a regular file that the caller names, with the caller's own rights: whatever it plants in its directory, links, hard links and
// swaps included, leads to nothing that it could not open by itself, and what is created belongs to it.
func (c Caller) OpenFile(field, name string, flags int, mode uint32) (*os.File, error) {
	clean, err := Relative(field, name)
	if err != nil {
		return nil, err
	}
	var f *os.File
	if err := c.do(func() (err error) {
		f, err = c.open(clean, flags, mode)
		return err
	}); err != nil {
		return nil, c.explain(field, clean, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = hosterr.New(hosterr.InvalidArgument, "%s: %s is not a regular file", field, clean)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// RemoveFile takes a regular file without other names out of its directory, with the caller's own rights.
func (c Caller) RemoveFile(field, name string) error {
	clean, err := Relative(field, name)
	if err != nil {
		return err
	}
	err = c.do(func() error {
		parent, err := c.open(filepath.Dir(clean), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer parent.Close()
		var stat unix.Stat_t
		if err := unix.Fstatat(int(parent.Fd()), filepath.Base(clean), &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink != 1 {
			return unix.EPERM
		}
		return unix.Unlinkat(int(parent.Fd()), filepath.Base(clean), 0)
	})
	if err != nil {
		return c.explain(field, clean, err)
	}
	return nil
}

// explain tells what is wrong with a name from what is wrong here.
func (c Caller) explain(field, name string, err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.ENOENT:
		return hosterr.New(hosterr.NotFound, "%s: %s does not exist: %v", field, name, err)
	case unix.EACCES, unix.EPERM:
		return hosterr.New(hosterr.PermissionDenied, "%s: user %d may not open %s: %v", field, c.UID, name, err)
	// In its place is a file, a directory, a fifo without a reader or a file with a lease.
	case unix.ENOTDIR, unix.EISDIR, unix.ENXIO, unix.EWOULDBLOCK, unix.ENAMETOOLONG:
		return hosterr.New(hosterr.InvalidArgument, "%s: %s is not a regular file: %v", field, name, err)
	}
	return err
}

func (c Caller) open(name string, flags int, mode uint32) (*os.File, error) {
	dir, err := os.OpenFile(c.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// A fifo or a lease of the caller's must not make us wait.
	return OpenAt(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, mode, Strictly)
}

// do runs a function on a thread that looks at files as the caller does.
func (c Caller) do(run func() error) error {
	if c.UID == 0 {
		return run()
	}
	done := make(chan error)
	go func() {
		// The thread is not unlocked: the runtime ends it with this goroutine, and nothing else runs with these rights.
		runtime.LockOSThread()
		err := become(c.UID, c.GID)
		if err == nil {
			err = run()
		}
		done <- err
	}()
	return <-done
}

// become changes whom the kernel takes the calling thread for when it opens files. With the user, the thread loses the capabilities that go past
// permissions; the groups of root would still open what belongs to them.
func become(uid, gid int) error {
	groups := [1]uint32{uint32(gid)}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	// Neither call tells whether it worked; asking again with -1 changes nothing and answers with the present ids.
	_, _ = unix.SetfsgidRetGid(gid)
	_, _ = unix.SetfsuidRetUid(uid)
	nowGID, _ := unix.SetfsgidRetGid(-1)
	nowUID, _ := unix.SetfsuidRetUid(-1)
	if nowUID != uid || nowGID != gid {
		return fmt.Errorf("this thread opens files as %d:%d, not as %d:%d", nowUID, nowGID, uid, gid)
	}
	return nil
}
