package rootfs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/mountfd"
	"golang.org/x/sys/unix"
)

// overlay is made of directories that are open.
type overlay struct {
	// Highest first.
	lowers []*os.File
	// Both or neither.
	upper, work *os.File
	target      *os.File
	readOnly    bool
}

// mountOverlay mounts by the calls that take one lower directory at a time: mount(2) has one page for all of them.
func mountOverlay(o overlay) error {
	mount, err := o.make()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return o.mountByOptions()
	}
	if err != nil {
		return fmt.Errorf("overlay on %s: %w", o.target.Name(), err)
	}
	defer mount.Close()
	return mountfd.AttachAt(mount, o.target)
}

func (o overlay) make() (*os.File, error) {
	var options []mountfd.Option
	for _, lower := range o.lowers {
		options = append(options, mountfd.Option{Name: "lowerdir+", Dir: lower})
	}
	if o.upper != nil {
		options = append(options, mountfd.Option{Name: "upperdir", Dir: o.upper}, mountfd.Option{Name: "workdir", Dir: o.work})
	}
	attributes := unix.MOUNT_ATTR_NODEV
	if o.readOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	return mountfd.Make("overlay", options, attributes)
}

// mountByOptions is for kernels before 6.5. Their overlays take only paths; those of the directories here are root's and have no links in them.
func (o overlay) mountByOptions() error {
	names := make([]string, 0, len(o.lowers))
	for _, lower := range o.lowers {
		names = append(names, lower.Name())
	}
	options := "lowerdir=" + strings.Join(names, ":")
	if o.upper != nil {
		options += ",upperdir=" + o.upper.Name() + ",workdir=" + o.work.Name()
	}
	if len(options) >= os.Getpagesize() {
		return hosterr.New(hosterr.Unsupported, "%d layers do not fit into one mount on this kernel (6.5 and later have no such limit)", len(o.lowers))
	}
	flags := uintptr(unix.MS_NODEV)
	if o.readOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("overlay", confine.ProcPath(o.target), "overlay", flags, options); err != nil {
		return fmt.Errorf("overlay on %s: %w", o.target.Name(), err)
	}
	return unix.Mount("", o.target.Name(), "", unix.MS_PRIVATE, "")
}
