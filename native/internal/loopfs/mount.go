package loopfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/mountfd"
	"golang.org/x/sys/unix"
)

// Another process may take the free loop device between asking for its number and claiming it.
const attachTriesMax = 64

// Mount mounts an image, or finds it mounted. The loop device frees itself with the last mount (LO_FLAGS_AUTOCLEAR), also when the helper has ended by then.
func Mount(image, target confine.Entry) error {
	mounted, err := Mounted(target)
	if err != nil || mounted {
		return err
	}
	device, err := attached(image)
	if err == nil && device == nil {
		device, err = attach(image)
	}
	if err != nil {
		return err
	}
	defer device.Close()
	return mountDevice(device, target)
}

// EnsureMounted is Ensure and Mount. An image that is made here has no device yet: looking for one costs more than the rest.
func EnsureMounted(ctx context.Context, image, target confine.Entry, sizeBytes int64, templates confine.Entry) error {
	if exists, err := image.Exists(); err != nil || exists {
		if err := Ensure(ctx, image, target, sizeBytes, templates); err != nil {
			return err
		}
		return Mount(image, target)
	}
	if err := create(ctx, image, RoundUp(sizeBytes), templates); err != nil {
		return err
	}
	device, err := attach(image)
	if err != nil {
		return err
	}
	defer device.Close()
	return mountDevice(device, target)
}

// MountAlso mounts what is mounted in one place in another one too.
func MountAlso(mounted, target confine.Entry) error {
	source, err := mounted.Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	mount, err := mountfd.Clone(source, false)
	if err != nil {
		return err
	}
	defer mount.Close()
	return errors.Join(target.EnsureDir(0o700), mountfd.Attach(mount, target))
}

// mountDevice mounts the file system of a device. The kernel is given the device's name, which is what tools show of a mount, and what it found
// there is compared with the device that is open here.
func mountDevice(device *os.File, target confine.Entry) error {
	options := []mountfd.Option{{Name: "source", Value: device.Name()}, {Name: "errors", Value: "remount-ro"}}
	mount, err := mountfd.Make("ext4", options, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOATIME)
	if err != nil {
		return fmt.Errorf("mount %s on %s: %w", device.Name(), target.Path(), err)
	}
	defer mount.Close()
	var wanted, found unix.Stat_t
	if err := errors.Join(unix.Fstat(int(device.Fd()), &wanted), unix.Fstat(int(mount.Fd()), &found)); err != nil {
		return err
	}
	if wanted.Rdev != found.Dev {
		return fmt.Errorf("%s led to another device than the one that was set up", device.Name())
	}
	return errors.Join(target.EnsureDir(0o700), mountfd.Attach(mount, target))
}

// attached finds the loop device an image already has. A second device on one image would be a second file system on the same blocks.
func attached(image confine.Entry) (*os.File, error) {
	want, err := image.Lstat()
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var number int
		if _, err := fmt.Sscanf(name, "/sys/block/loop%d/", &number); err != nil {
			continue
		}
		// Closing a device writes out what is cached of it, so that only one that may be meant is opened. Its path may be another's view of it.
		backing, err := os.ReadFile(name)
		if err != nil || filepath.Base(strings.TrimSpace(string(backing))) != image.Base() {
			continue
		}
		device, err := openLoop(number)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && info.Device == want.Dev && info.Inode == want.Ino {
			return device, nil
		}
		device.Close()
	}
	return nil, nil
}

func attach(image confine.Entry) (*os.File, error) {
	backing, err := image.Open(unix.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, hosterr.New(hosterr.Unsupported, "no loop devices on this machine: %v", err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	copy(config.Info.File_name[:], image.Path())
	for range attachTriesMax {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, hosterr.New(hosterr.NoSpace, "no free loop device: %v", err)
		}
		device, err := openLoop(number)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("LOOP_CONFIGURE: %w", err)
		}
	}
	return nil, hosterr.New(hosterr.Busy, "no loop device in %d tries", attachTriesMax)
}

// loopMajor is the kernel's number of loop devices.
const loopMajor = 7

// openLoop opens a loop device by number; without udev its node may be missing.
func openLoop(number int) (*os.File, error) {
	name, wanted := fmt.Sprintf("/dev/loop%d", number), unix.Mkdev(loopMajor, uint32(number))
	device, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err := unix.Mknod(name, unix.S_IFBLK|0o600, int(wanted)); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("mknod %s: %w", name, err)
		}
		device, err = os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &stat); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK || stat.Rdev != wanted {
		return nil, errors.Join(fmt.Errorf("%s is not loop device %d", name, number), device.Close())
	}
	return device, nil
}

// Unmount undoes Mount and removes the mount point. Unmounting what is not mounted succeeds. Unless detaching, it is busy while any part of the
// file system is mounted elsewhere too: unmounting one place of it would hide that it is in use.
func Unmount(target confine.Entry, flags int) error {
	if flags&unix.MNT_DETACH == 0 {
		elsewhere, err := mountedElsewhere(target)
		if err != nil {
			return err
		}
		if elsewhere != "" {
			return hosterr.New(hosterr.Busy, "%s is in use at %s", target.Path(), elsewhere)
		}
	}
	err := mountfd.Unmount(target, flags)
	switch {
	case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
	case errors.Is(err, unix.EBUSY):
		return hosterr.New(hosterr.Busy, "%s is in use: %v", target.Path(), err)
	default:
		return fmt.Errorf("unmount %s: %w", target.Path(), err)
	}
	return target.Remove()
}

// mountedElsewhere is another mount point of the file system that is mounted at target.
func mountedElsewhere(target confine.Entry) (string, error) {
	mounted, err := Mounted(target)
	if err != nil || !mounted {
		return "", err
	}
	stat, err := target.Lstat()
	if err != nil {
		return "", err
	}
	device := fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))
	found := ""
	err = eachMount(func(dev, point string) {
		if dev == device && point != target.Path() {
			found = point
		}
	})
	return found, err
}

// Mounted reports whether an entry is a mount point.
func Mounted(target confine.Entry) (bool, error) {
	at, err := target.Statx()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if at.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return at.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	above, err := target.Dir().Lstat()
	return unix.Mkdev(at.Dev_major, at.Dev_minor) != above.Dev, err
}

// Usage is the size and the used bytes of a mounted file system.
func Usage(target confine.Entry) (sizeBytes, usedBytes int64, err error) {
	dir, err := target.Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return 0, 0, err
	}
	defer dir.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &stat); err != nil {
		return 0, 0, err
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Blocks-stat.Bfree) * stat.Bsize, nil
}

// MountsBelow lists the mount points below a directory, deepest last mounted first, so that they can be unmounted in this order.
func MountsBelow(dir confine.Entry) ([]confine.Entry, error) {
	var found []confine.Entry
	err := eachMount(func(_, point string) {
		if name, isBelow := strings.CutPrefix(point, dir.Path()+"/"); isBelow {
			found = append([]confine.Entry{dir.In(name)}, found...)
		}
	})
	return found, err
}

// Uppers is the upper directory of every overlay, by mount point.
func Uppers() (map[string]string, error) {
	found := map[string]string{}
	err := eachLine(func(fields []string) {
		kind, options := fileSystemOf(fields)
		if kind != "overlay" {
			return
		}
		for _, option := range strings.Split(options, ",") {
			if upper, isUpper := strings.CutPrefix(option, "upperdir="); isUpper {
				found[unescape(fields[pointField])] = unescape(upper)
			}
		}
	})
	return found, err
}

// NamedByMount reports whether an overlay is stacked on a directory.
func NamedByMount(dir string) (bool, error) {
	named := false
	err := eachLine(func(fields []string) {
		kind, options := fileSystemOf(fields)
		named = named || (kind == "overlay" && strings.Contains(unescape(options), dir))
	})
	return named, err
}

// fileSystemOf is what follows the separator of a line: the kind of file system and, after its source, its options.
func fileSystemOf(fields []string) (kind, options string) {
	at := slices.Index(fields, "-")
	if at < 0 || len(fields) < at+4 {
		return "", ""
	}
	return fields[at+1], fields[at+3]
}

// eachMount visits the mount table: the device's numbers and the mount point.
func eachMount(visit func(device, point string)) error {
	return eachLine(func(fields []string) { visit(fields[deviceField], unescape(fields[pointField])) })
}

// Fields of a line of the mount table.
const (
	deviceField = 2
	pointField  = 4
)

// lineBytesMax is more than the options of an overlay of the most layers that are stacked.
const lineBytesMax = 1 << 20

func eachLine(visit func(fields []string)) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > pointField {
			visit(fields)
		}
	}
	return lines.Err()
}

var mountinfoEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\054`, ",", `\075`, "=", `\134`, `\`)

func unescape(field string) string { return mountinfoEscapes.Replace(field) }
