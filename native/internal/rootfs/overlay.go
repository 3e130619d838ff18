package rootfs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

type overlay struct {
	// Highest first.
	lowers      []string
	upper, work string
	target      string
	readOnly    bool
}

// mountOverlay mounts by the calls that take one lower directory at a time: mount(2) has one page for all of them.
func mountOverlay(o overlay) error {
	err := mountByFsconfig(o)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = mountByOptions(o)
	}
	if err != nil {
		return fmt.Errorf("overlay on %s: %w", o.target, err)
	}
	return unix.Mount("", o.target, "", unix.MS_PRIVATE, "")
}

func mountByFsconfig(o overlay) error {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, lower := range o.lowers {
		if err := unix.FsconfigSetString(fd, "lowerdir+", lower); err != nil {
			return err
		}
	}
	for name, value := range map[string]string{"upperdir": o.upper, "workdir": o.work} {
		if value == "" {
			continue
		}
		if err := unix.FsconfigSetString(fd, name, value); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return err
	}
	attributes := unix.MOUNT_ATTR_NODEV
	if o.readOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	mount, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return unix.MoveMount(mount, "", unix.AT_FDCWD, o.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

func mountByOptions(o overlay) error {
	options := "lowerdir=" + strings.Join(o.lowers, ":")
	if o.upper != "" {
		options += ",upperdir=" + o.upper + ",workdir=" + o.work
	}
	if len(options) >= os.Getpagesize() {
		return hosterr.New(hosterr.Unsupported, "%d layers do not fit into one mount on this kernel (6.5 and later have no such limit)", len(o.lowers))
	}
	flags := uintptr(unix.MS_NODEV)
	if o.readOnly {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("overlay", o.target, "overlay", flags, options)
}
