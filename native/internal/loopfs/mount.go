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

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// Another process may take the free loop device between asking for its number and claiming it.
const attachTriesMax = 64

// Mount mounts an image, or finds it mounted. The loop device frees itself with the last mount, also when nobody is left to free it.
func Mount(image, target string) error {
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
	return mountDevice(device.Name(), target)
}

// EnsureMounted is Ensure and Mount. An image that is made here has no device yet: looking for one costs more than the rest.
func EnsureMounted(ctx context.Context, image, target string, sizeBytes int64, templates string) error {
	if _, err := os.Stat(image); !errors.Is(err, os.ErrNotExist) {
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
	return mountDevice(device.Name(), target)
}

// MountAlso mounts what is mounted in one place in another one too.
func MountAlso(mounted, target string) error {
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(mounted, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", mounted, target, err)
	}
	return unix.Mount("", target, "", unix.MS_PRIVATE, "")
}

func mountDevice(device, target string) error {
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(device, target, "ext4", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOATIME, "errors=remount-ro"); err != nil {
		return fmt.Errorf("mount %s on %s: %w", device, target, err)
	}
	return unix.Mount("", target, "", unix.MS_PRIVATE, "")
}

// attached finds the loop device an image already has. A second device on one image would be a second file system on the same blocks.
func attached(image string) (*os.File, error) {
	var want unix.Stat_t
	if err := unix.Stat(image, &want); err != nil {
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
		if err != nil || filepath.Base(strings.TrimSpace(string(backing))) != filepath.Base(image) {
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

func attach(image string) (*os.File, error) {
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
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
	copy(config.Info.File_name[:], image)
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

// openLoop opens a loop device by number; without udev its node may be missing.
func openLoop(number int) (*os.File, error) {
	name := fmt.Sprintf("/dev/loop%d", number)
	device, err := os.OpenFile(name, os.O_RDWR, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return device, err
	}
	const loopMajor = 7
	if err := unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(number)))); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("mknod %s: %w", name, err)
	}
	return os.OpenFile(name, os.O_RDWR, 0)
}

// Unmount undoes Mount and removes the mount point. Unmounting what is not mounted succeeds. Unless detaching, it is busy while any part of the
// file system is mounted elsewhere too: unmounting one place of it would hide that it is in use.
func Unmount(target string, flags int) error {
	if flags&unix.MNT_DETACH == 0 {
		elsewhere, err := mountedElsewhere(target)
		if err != nil {
			return err
		}
		if elsewhere != "" {
			return hosterr.New(hosterr.Busy, "%s is in use at %s", target, elsewhere)
		}
	}
	err := unix.Unmount(target, flags|unix.UMOUNT_NOFOLLOW)
	switch {
	case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
	case errors.Is(err, unix.EBUSY):
		return hosterr.New(hosterr.Busy, "%s is in use: %v", target, err)
	default:
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// mountedElsewhere is another mount point of the file system that is mounted at target.
func mountedElsewhere(target string) (string, error) {
	mounted, err := Mounted(target)
	if err != nil || !mounted {
		return "", err
	}
	var stat unix.Stat_t
	if err := unix.Stat(target, &stat); err != nil {
		return "", err
	}
	device := fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))
	found := ""
	err = eachMount(func(dev, point string) {
		if dev == device && point != target {
			found = point
		}
	})
	return found, err
}

// Mounted reports whether a path is a mount point.
func Mounted(target string) (bool, error) {
	var at, above unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &at)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if at.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return at.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	if err := unix.Statx(unix.AT_FDCWD, filepath.Dir(target), 0, unix.STATX_BASIC_STATS, &above); err != nil {
		return false, err
	}
	return at.Dev_major != above.Dev_major || at.Dev_minor != above.Dev_minor, nil
}

// Usage is the size and the used bytes of a mounted file system.
func Usage(target string) (sizeBytes, usedBytes int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(target, &stat); err != nil {
		return 0, 0, err
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Blocks-stat.Bfree) * stat.Bsize, nil
}

// MountsBelow lists the mount points below a directory, deepest last mounted first, so that they can be unmounted in this order.
func MountsBelow(dir string) ([]string, error) {
	var found []string
	err := eachMount(func(_, point string) {
		if strings.HasPrefix(point, dir+"/") {
			found = append([]string{point}, found...)
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
