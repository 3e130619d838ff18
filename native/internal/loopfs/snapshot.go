package loopfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// snapshotSuffix ends the name of a copy; no image's own name does.
const snapshotSuffix = ".snapshot"

// SnapshotBounds is what a copy may cost others.
type SnapshotBounds struct {
	// PauseMax is how long writers may wait.
	PauseMax time.Duration
	// Room refuses a copy of so many bytes where the disk has no room for it besides what is kept free.
	Room func(bytes int64) error
}

// Snapshot copies an image as it is at one moment and opens the copy, which has no name any more. While a mounted one is copied its writers
// wait: for a reflink some milliseconds, else for as long as the disk takes to copy what is in use, and never longer than
// bounds.PauseMax.
func Snapshot(ctx context.Context, image, target confine.Entry, bounds SnapshotBounds) (*os.File, time.Duration, error) {
	work := image.WithSuffix(snapshotSuffix)
	made, err := copyMoment(ctx, image, target, work, bounds)
	if err != nil {
		return nil, made.Paused, err
	}
	snapshot, err := work.Open(unix.O_RDONLY, 0)
	return snapshot, made.Paused, errors.Join(err, work.Remove())
}

// Copied is how a copy was made.
type Copied struct {
	// Paused is how long writers waited.
	Paused time.Duration
	// Reflink: the copy shares its blocks with the original until one of them changes.
	Reflink bool
	// UsedBytes is what the copy has on the disk, shared or not.
	UsedBytes int64
}

// Clone makes a second image of one as it is at one moment, under the same conditions as Snapshot. It has its name once it is on the disk. One that has the
// name already is left as it is: the call that made it may have lost its answer.
func Clone(ctx context.Context, image, target, to confine.Entry, bounds SnapshotBounds) (Copied, error) {
	if stat, err := to.Lstat(); err == nil {
		return Copied{UsedBytes: stat.Blocks * statBlockBytes}, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return Copied{}, err
	}
	work := to.WithSuffix(snapshotSuffix)
	made, err := copyMoment(ctx, image, target, work, bounds)
	if err != nil {
		return made, err
	}
	copied, err := work.Open(unix.O_RDONLY, 0)
	if err != nil {
		return made, err
	}
	defer copied.Close()
	if err := copied.Sync(); err != nil {
		return made, errors.Join(err, work.Remove())
	}
	if err := work.Rename(to); err != nil {
		return made, errors.Join(err, work.Remove())
	}
	stat, err := to.Lstat()
	if err != nil {
		return made, err
	}
	made.UsedBytes = stat.Blocks * statBlockBytes
	dir, err := to.Dir().OpenDir()
	if err != nil {
		return made, err
	}
	return made, errors.Join(dir.Sync(), dir.Close())
}

// copyMoment copies an image to work, while its writers wait where it is mounted. Nothing is left of a copy that failed.
func copyMoment(ctx context.Context, image, target, work confine.Entry, bounds SnapshotBounds) (Copied, error) {
	source, err := image.Open(unix.O_RDONLY, 0)
	if err != nil {
		return Copied{}, err
	}
	defer source.Close()
	copying := sparseCopy{source: source, to: work, room: bounds.Room}
	made, err := copyFrozen(ctx, copying, target, bounds.PauseMax)
	if errors.Is(err, errNotMounted) {
		made.Reflink, err = copying.run(ctx)
	}
	if err != nil {
		return made, errors.Join(err, work.Remove())
	}
	return made, nil
}

// errNotMounted: there is a bare directory, or none. FIFREEZE on it would stop every writer of the disk that holds the data directory.
var errNotMounted = errors.New("not mounted")

// openMounted opens the root of the file system that is mounted at target. It asks the descriptor, which stays on that file system, and not the
// name: between a look at the name and its opening the file system can be unmounted.
func openMounted(target confine.Entry) (*os.File, error) {
	dir, err := target.OpenDir()
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", target.Path(), errNotMounted)
	}
	if err != nil {
		return nil, err
	}
	var at unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &at); err != nil {
		return nil, errors.Join(fmt.Errorf("statx %s: %w", target.Path(), err), dir.Close())
	}
	above, err := target.Dir().Lstat()
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	// Before Linux 5.8 the kernel does not say whether a descriptor is the root of a mount: then the device alone decides.
	isRoot := at.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || at.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	if !isRoot || unix.Mkdev(at.Dev_major, at.Dev_minor) == above.Dev {
		return nil, errors.Join(fmt.Errorf("%s: %w", target.Path(), errNotMounted), dir.Close())
	}
	return dir, nil
}

// copyFrozen copies the image of a mounted file system while its writers wait; errNotMounted where none is mounted.
func copyFrozen(ctx context.Context, copying sparseCopy, target confine.Entry, pauseMax time.Duration) (made Copied, err error) {
	dir, err := openMounted(target)
	if err != nil {
		return made, err
	}
	defer dir.Close()
	// What is written out beforehand is not waited for in the pause.
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return made, err
	}
	started := time.Now()
	if err := unix.IoctlSetInt(int(dir.Fd()), ioctlFreeze, 0); err != nil {
		return made, fmt.Errorf("FIFREEZE: %w", err)
	}
	var thawed error
	thaw := sync.OnceFunc(func() { thawed = unix.IoctlSetInt(int(dir.Fd()), ioctlThaw, 0) })
	bounded, cancel := context.WithTimeout(ctx, pauseMax)
	defer cancel()
	// A single read of a disk that does not answer must not hold the writers either.
	unbind := context.AfterFunc(bounded, thaw)
	made.Reflink, err = copying.run(bounded)
	// False: the time was up, and what was copied since is no single moment.
	isWhole := unbind()
	thaw()
	made.Paused = time.Since(started)
	if ctx.Err() == nil && (!isWhole || errors.Is(err, context.DeadlineExceeded)) {
		return made, hosterr.New(hosterr.Busy, "%s was not copied within %s, for which its writers may wait: suspend its sandbox first, or allow more with --pause-max", target.Base(), pauseMax)
	}
	return made, errors.Join(err, ctx.Err(), thawed)
}

// FIFREEZE and FITHAW, _IOWR('X', 119 and 120, int).
const (
	ioctlFreeze = 0xc0045877
	ioctlThaw   = 0xc0045878
)

// Recover undoes what a helper that was killed in the middle of a snapshot left: file systems whose writers wait, and copies.
func Recover(images, mounts confine.Entry) error {
	points, err := mounts.ReadDir()
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := thawMounted(mounts.In(point.Name())); err != nil {
			return err
		}
	}
	copies, err := images.ReadDir()
	if err != nil {
		return err
	}
	for _, entry := range copies {
		if name := images.In(entry.Name()); isSnapshot(entry.Name()) {
			if err := name.Remove(); err != nil {
				return err
			}
		}
	}
	return nil
}

func isSnapshot(name string) bool {
	return len(name) > len(snapshotSuffix) && name[len(name)-len(snapshotSuffix):] == snapshotSuffix
}

// thawMounted lets the writers of a file system go on; of one that is not frozen the kernel says EINVAL.
func thawMounted(target confine.Entry) error {
	dir, err := openMounted(target)
	if errors.Is(err, errNotMounted) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.IoctlSetInt(int(dir.Fd()), ioctlThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("FITHAW %s: %w", target.Path(), err)
	}
	return nil
}

// OpenUnmounted opens an image that nobody writes to. `busy` while it is mounted.
func OpenUnmounted(image, target confine.Entry) (*os.File, error) {
	mounted, err := Mounted(target)
	if err != nil {
		return nil, err
	}
	if mounted {
		return nil, hosterr.New(hosterr.Busy, "%s is mounted", target.Base())
	}
	return image.Open(unix.O_RDONLY, 0)
}

// Adopt gives a file that is on the disk the name of an image. One that has the name already is left as it is.
func Adopt(file, image confine.Entry) error {
	if err := file.Link(image); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	dir, err := image.Dir().OpenDir()
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
