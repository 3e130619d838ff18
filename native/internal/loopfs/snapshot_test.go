package loopfs

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"golang.org/x/sys/unix"
)

// mountDisk mounts a file system of the test's own.
func mountDisk(t *testing.T) (tree *confine.Tree, disk confine.Entry) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts and must be started by root")
	}
	tree, err := confine.OpenTree(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	disk = tree.At("disk")
	t.Cleanup(func() {
		if err := Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := EnsureMounted(t.Context(), tree.At("disk.img"), disk, 128<<20, tree.At("templates")); err != nil {
		t.Fatal(err)
	}
	return tree, disk
}

// assertRunning fails where a file system is frozen, and thaws it.
func assertRunning(t *testing.T, disk confine.Entry) {
	t.Helper()
	dir, err := disk.OpenDir()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.IoctlSetInt(int(dir.Fd()), ioctlThaw, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%s was frozen: FITHAW says %v", disk.Path(), err)
	}
}

// A layer that is unmounted meanwhile leaves a bare directory of the disk that everything lies on.
func TestABareDirectoryIsNotFrozen(t *testing.T) {
	tree, disk := mountDisk(t)
	inner, err := confine.OpenTree(disk.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	if err := errors.Join(inner.At("mnt").Mkdir(0o700), inner.At("mnt/layer").Mkdir(0o700)); err != nil {
		t.Fatal(err)
	}
	source, err := tree.At("disk.img").Open(unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	copied := tree.At("copy")
	for _, name := range []string{"mnt/layer", "mnt/none"} {
		if _, err := copyFrozen(t.Context(), sparseCopy{source: source, to: copied}, inner.At(name), time.Second); !errors.Is(err, errNotMounted) {
			t.Errorf("%s: got %v", name, err)
		}
		assertRunning(t, disk)
		if exists, err := copied.Exists(); exists || err != nil {
			t.Errorf("%s was copied: %v", name, err)
		}
		if err := thawMounted(inner.At(name)); err != nil {
			t.Errorf("thaw %s: %v", name, err)
		}
	}
}

func TestAMountedImageIsFrozenOnlyWhileItIsCopied(t *testing.T) {
	tree, disk := mountDisk(t)
	snapshot, paused, err := Snapshot(t.Context(), tree.At("disk.img"), disk, SnapshotBounds{PauseMax: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	if paused <= 0 {
		t.Errorf("its writers waited %s", paused)
	}
	assertRunning(t, disk)
}

// A file system of the test's own has no reflinks, whatever the machine's has.
func TestACopyStopsWhereTheRoomEnds(t *testing.T) {
	const size = copyBytesMax + 4<<20
	_, disk := mountDisk(t)
	inner, err := confine.OpenTree(disk.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	source, err := inner.At("image").Open(unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if _, err := source.Write(bytes.Repeat([]byte("x"), size)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(source.Sync(), inner.At("mnt").Mkdir(0o700)); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	for refused, want := range [][]int64{{size}, {size, copyBytesMax}, {size, copyBytesMax, size - copyBytesMax}} {
		var asked []int64
		bounds := SnapshotBounds{PauseMax: time.Minute, Room: func(bytes int64) error {
			asked = append(asked, bytes)
			if len(asked) > refused {
				return full
			}
			return nil
		}}
		_, _, err := Snapshot(t.Context(), inner.At("image"), inner.At("mnt"), bounds)
		if !errors.Is(err, full) || !slices.Equal(asked, want) {
			t.Errorf("got %v after it asked for %v, expected %v", err, asked, want)
		}
		if exists, err := inner.At("image").WithSuffix(snapshotSuffix).Exists(); exists || err != nil {
			t.Errorf("what was copied is still there: %v", err)
		}
	}
}
