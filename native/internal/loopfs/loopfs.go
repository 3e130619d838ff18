// Package loopfs makes file systems of a fixed size in sparse files: the one quota that every kernel and disk has.
package loopfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/systemtool"
	"golang.org/x/sys/unix"
)

// SizeMin is the smallest image: ext4 needs this much for itself.
const SizeMin = 1 << 20

const blockSize = 4096

// RoundUp is the size an image gets for a request.
func RoundUp(sizeBytes int64) int64 { return (sizeBytes + blockSize - 1) / blockSize * blockSize }

// Ensure makes the image if it does not exist and grows it if it is smaller than asked, also while it is mounted. It never shrinks.
func Ensure(ctx context.Context, image, target confine.Entry, sizeBytes int64, templates confine.Entry) error {
	sizeBytes = RoundUp(sizeBytes)
	info, err := image.Lstat()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return create(ctx, image, sizeBytes, templates)
	case err != nil:
		return err
	case info.Size >= sizeBytes:
		return nil
	}
	mounted, err := Mounted(target)
	if err != nil {
		return err
	}
	if !mounted {
		return grow(ctx, image, sizeBytes)
	}
	err = growMounted(image, target, info.Size, sizeBytes)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	// Without CAP_SYS_RESOURCE the kernel grows nothing that is mounted: one that is mounted only here is unmounted for it, another stays busy.
	if err := Unmount(target, 0); err != nil {
		return err
	}
	return errors.Join(grow(ctx, image, sizeBytes), Mount(image, target))
}

// growMounted tells first the loop device and then the file system about the larger file; containers that have it mounted go on.
func growMounted(image, target confine.Entry, beforeBytes, sizeBytes int64) error {
	dir, err := target.OpenDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	device, err := deviceOf(dir)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := resizeDevice(image, device, sizeBytes); err != nil {
		return err
	}
	err = resizeMounted(dir, sizeBytes)
	if err != nil {
		// The file's size is how a later call knows what is left to do.
		return errors.Join(err, resizeDevice(image, device, beforeBytes))
	}
	return nil
}

func resizeDevice(image confine.Entry, device *os.File, sizeBytes int64) error {
	if err := truncate(image, sizeBytes); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("LOOP_SET_CAPACITY: %w", err)
	}
	return nil
}

func truncate(image confine.Entry, sizeBytes int64) error {
	f, err := image.Open(unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(sizeBytes), f.Close())
}

// resizeMounted asks the kernel itself: resize2fs would have to recognise the mount by its device's name.
func resizeMounted(dir *os.File, sizeBytes int64) error {
	// EXT4_IOC_RESIZE_FS, _IOW('f', 16, __u64): the new size in blocks.
	const ioctlResize = 0x40086610
	blocks := uint64(sizeBytes / blockSize)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), ioctlResize, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return fmt.Errorf("EXT4_IOC_RESIZE_FS: %w", errno)
	}
	return nil
}

// deviceOf opens the loop device of a mounted file system.
func deviceOf(dir *os.File) (*os.File, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return nil, err
	}
	return openLoop(int(unix.Minor(stat.Dev)))
}

// create copies a template of the size: the few blocks that are not holes cost less than another mkfs.
func create(ctx context.Context, image confine.Entry, sizeBytes int64, templates confine.Entry) error {
	template := templates.In(fmt.Sprintf("ext4-%d.img", sizeBytes))
	source, err := template.Open(unix.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err := errors.Join(templates.EnsureDir(0o700), format(ctx, template, sizeBytes)); err != nil {
			return err
		}
		source, err = template.Open(unix.O_RDONLY, 0)
	}
	if err != nil {
		return err
	}
	defer source.Close()
	work := image.WithSuffix(".tmp")
	if _, err := (sparseCopy{source: source, to: work}).run(ctx); err != nil {
		return errors.Join(err, work.Remove())
	}
	return work.Rename(image)
}

func format(ctx context.Context, template confine.Entry, sizeBytes int64) error {
	work := template.Dir().In(fmt.Sprintf(".mkfs-%016x", rand.Uint64()))
	f, err := work.Open(unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(sizeBytes); err != nil {
		return errors.Join(err, work.Remove())
	}
	// One inode per 8 KiB: a node_modules tree has small files. No reserved blocks: there is no administrator inside to rescue.
	if err := run(ctx, f, "mkfs.ext4", "-q", "-F", "-m", "0", "-i", "8192", "-b", "4096",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"+growthOption(sizeBytes), "-O", "metadata_csum", "-J", "size=4"); err != nil {
		// A journal does not fit into the smallest images; they are mounted without one.
		if err := run(ctx, f, "mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-O", "^has_journal"); err != nil {
			return errors.Join(err, work.Remove())
		}
	}
	return work.Rename(template)
}

// growthOption bounds what is set aside for growth. By default that is room for a thousandfold, 4 MiB that every new image would copy and write
// out; whatever grows further is given its tables elsewhere, by the kernel as by resize2fs.
func growthOption(sizeBytes int64) string {
	const growthMax, largeBytes = 64, 1 << 30
	if sizeBytes < largeBytes {
		return ""
	}
	return fmt.Sprintf(",resize=%d", growthMax*sizeBytes/blockSize)
}

func grow(ctx context.Context, image confine.Entry, sizeBytes int64) error {
	f, err := image.Open(unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(sizeBytes); err != nil {
		return err
	}
	// e2fsck answers 1 when it repaired something, which is a success; resize2fs refuses an image that was not checked.
	if err := run(ctx, f, "e2fsck", "-f", "-p"); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() > 1 {
			return err
		}
	}
	return run(ctx, f, "resize2fs")
}

// run runs a program of e2fsprogs on an image. The program gets the open file as descriptor 3 and opens that, whatever the image is called by then.
func run(ctx context.Context, image *os.File, name string, args ...string) error {
	cmd, err := systemtool.Command(ctx, name, append(args, "/proc/self/fd/3")...)
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{image}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %s: %w", name, image.Name(), strings.TrimSpace(output.String()), err)
	}
	return nil
}

// sparseCopy copies a file and its holes.
type sparseCopy struct {
	source *os.File
	to     confine.Entry
	// room refuses so many more bytes on the disk; nil where the copy is small and the room was looked at before.
	room func(bytes int64) error
}

// run copies until the context ends or the room does, and tells whether the copy shares its blocks with the source.
func (c sparseCopy) run(ctx context.Context) (reflink bool, err error) {
	var info unix.Stat_t
	if err := unix.Fstat(int(c.source.Fd()), &info); err != nil {
		return false, &os.PathError{Op: "fstat", Path: c.source.Name(), Err: err}
	}
	// What a copy that was cut off left is no beginning of this one.
	if err := c.to.Remove(); err != nil {
		return false, err
	}
	target, err := c.to.Open(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	if err := target.Truncate(info.Size); err != nil {
		return false, errors.Join(err, target.Close())
	}
	// A reflink costs nothing where the file system has it.
	if unix.IoctlFileClone(int(target.Fd()), int(c.source.Fd())) == nil {
		return true, target.Close()
	}
	if err := c.checkRoom(info.Blocks * statBlockBytes); err != nil {
		return false, errors.Join(err, target.Close())
	}
	return false, errors.Join(c.extents(ctx, target, info.Size), target.Close())
}

// statBlockBytes is the unit in which stat counts what a file has on the disk.
const statBlockBytes = 512

func (c sparseCopy) checkRoom(bytes int64) error {
	if c.room == nil {
		return nil
	}
	return c.room(bytes)
}

// copyBytesMax is how much one call copies: between two of them is looked whether there is still time, and room.
const copyBytesMax = 16 << 20

func (c sparseCopy) extents(ctx context.Context, target *os.File, size int64) error {
	for at := int64(0); at < size; {
		start, err := c.source.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, syscall.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := c.source.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		from, to := start, start
		for from < end {
			piece := min(end-from, copyBytesMax)
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.checkRoom(piece); err != nil {
				return err
			}
			if _, err := unix.CopyFileRange(int(c.source.Fd()), &from, int(target.Fd()), &to, int(piece), 0); err != nil {
				return fmt.Errorf("copy_file_range: %w", err)
			}
		}
		at = end
	}
	return nil
}
