// Package mountfd makes mounts by descriptor: what is mounted is made or cloned as a file that is open here, and then put on a directory or file that is open too. No path is looked up
// again on the way.
package mountfd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"golang.org/x/sys/unix"
)

// Option is one setting of a file system: text, or a directory that is open.
type Option struct {
	Name, Value string
	// Dir is given by descriptor, which overlay takes from Linux 6.13 on, and by its path before.
	Dir *os.File
}

// Make makes a file system that is mounted nowhere yet.
func Make(kind string, options []Option, attributes int) (*os.File, error) {
	fd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen %s: %w", kind, err)
	}
	context := os.NewFile(uintptr(fd), kind)
	defer context.Close()
	for _, option := range options {
		if err := set(context, option); err != nil {
			return nil, fmt.Errorf("fsconfig %s of %s: %w", option.Name, kind, explain(context, err))
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return nil, fmt.Errorf("fsconfig of %s: %w", kind, explain(context, err))
	}
	mount, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, fmt.Errorf("fsmount %s: %w", kind, err)
	}
	return os.NewFile(uintptr(mount), kind), nil
}

func set(context *os.File, option Option) error {
	if option.Dir == nil {
		return unix.FsconfigSetString(int(context.Fd()), option.Name, option.Value)
	}
	err := unix.FsconfigSetFd(int(context.Fd()), option.Name, int(option.Dir.Fd()))
	if errors.Is(err, unix.EINVAL) {
		return unix.FsconfigSetString(int(context.Fd()), option.Name, option.Dir.Name())
	}
	return err
}

// explain adds what the kernel wrote about a refusal; a read of the context gives one message.
func explain(context *os.File, err error) error {
	text := make([]byte, 512)
	if n, readErr := unix.Read(int(context.Fd()), text); readErr == nil && n > 0 {
		return fmt.Errorf("%w (%s)", err, text[:n])
	}
	return err
}

// Clone makes another mount of what an open descriptor leads to, mounted nowhere yet; with all that is mounted below where that is asked for.
func Clone(source *os.File, recursive bool) (*os.File, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(int(source.Fd()), "", flags)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", source.Name(), err)
	}
	return os.NewFile(uintptr(fd), source.Name()), nil
}

// Attach puts a mount on an entry. It then passes nothing on to other mount namespaces.
func Attach(mount *os.File, target confine.Entry) error {
	at, err := target.Open(unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer at.Close()
	return AttachAt(mount, at)
}

// AttachAt is Attach for a directory or file that is open.
func AttachAt(mount, at *os.File) error {
	const flags = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if err := unix.MoveMount(int(mount.Fd()), "", int(at.Fd()), "", flags); err != nil {
		return fmt.Errorf("move_mount to %s: %w", at.Name(), err)
	}
	return change(mount, unix.MS_PRIVATE)
}

// AttachWithoutDevices is Attach for a mount that shows no devices, not even for the moment in which it is attached where the kernel can (Linux 5.12).
func AttachWithoutDevices(mount *os.File, target confine.Entry) error {
	err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV})
	if errors.Is(err, unix.ENOSYS) {
		return errors.Join(Attach(mount, target), change(mount, unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NODEV))
	}
	if err != nil {
		return fmt.Errorf("mount_setattr of %s: %w", mount.Name(), err)
	}
	return Attach(mount, target)
}

// change names the mount by its own descriptor, whatever was mounted over it meanwhile.
func change(mount *os.File, flags uintptr) error {
	if err := unix.Mount("", "/proc/self/fd/"+strconv.Itoa(int(mount.Fd())), "", flags, ""); err != nil {
		return fmt.Errorf("change of the mount of %s: %w", mount.Name(), err)
	}
	return nil
}

// A process that was forked here has copies of this program's descriptors until it executes its own program, about a millisecond, and one of
// them may be of a directory on the mount. What is busy for longer is in use.
const (
	busyTriesMax = 5
	busyPause    = 2 * time.Millisecond
)

// Unmount takes away the topmost mount of an entry.
func Unmount(target confine.Entry, flags int) error {
	return target.Through(func(path string) (err error) {
		for range busyTriesMax {
			if err = unix.Unmount(path, flags|unix.UMOUNT_NOFOLLOW); !errors.Is(err, unix.EBUSY) {
				return err
			}
			time.Sleep(busyPause)
		}
		return err
	})
}

// Remove takes away every mount of an entry, and the entry itself.
func Remove(target confine.Entry) error {
	// Two runtimes that start at the same moment may both have mounted; each call takes away one.
	for {
		err := Unmount(target, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", target.Path(), err)
		}
	}
	return target.Remove()
}
