package mountfd

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"golang.org/x/sys/unix"
)

// inOwnMounts runs a test in a mount namespace of its own, on a tree that is a file system of its own there.
func inOwnMounts(t *testing.T, run func(tree *confine.Tree) error) {
	t.Helper()
	dir := t.TempDir()
	done := make(chan error)
	go func() {
		// The thread is not unlocked: the runtime ends it with this goroutine, and its mounts go with it.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
				return err
			}
			tree, err := confine.OpenTree(dir)
			if err != nil {
				return err
			}
			return errors.Join(run(tree), tree.Close())
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func open(dir confine.Entry) (*os.File, error) { return dir.Open(unix.O_PATH|unix.O_DIRECTORY, 0) }

// An overlay of open directories is of those very directories, whatever their names lead to by then; the mount table shows where they are.
func TestOverlayIsOfTheDirectoriesThatAreOpen(t *testing.T) {
	inOwnMounts(t, func(tree *confine.Tree) error {
		var files []*os.File
		for _, name := range []string{"lower", "upper", "work", "target"} {
			if err := tree.At(name).Mkdir(0o755); err != nil {
				return err
			}
			f, err := open(tree.At(name))
			if err != nil {
				return err
			}
			defer f.Close()
			files = append(files, f)
		}
		if err := tree.At("lower/right").WriteFile([]byte("right"), 0o600); err != nil {
			return err
		}
		// A path would now lead to another directory.
		if err := errors.Join(tree.At("lower").Rename(tree.At("moved")), tree.At("lower").Mkdir(0o755)); err != nil {
			return err
		}
		options := []Option{{Name: "lowerdir+", Dir: files[0]}, {Name: "upperdir", Dir: files[1]}, {Name: "workdir", Dir: files[2]}}
		mount, err := Make("overlay", options, unix.MOUNT_ATTR_NODEV)
		if err != nil {
			return err
		}
		defer mount.Close()
		if err := AttachAt(mount, files[3]); err != nil {
			return err
		}
		if text, err := tree.At("target/right").ReadFile(100); err != nil || string(text) != "right" {
			t.Errorf("found %q, %v", text, err)
		}
		table, err := os.ReadFile("/proc/thread-self/mountinfo")
		if err != nil {
			return err
		}
		if !strings.Contains(string(table), "upperdir="+tree.At("upper").Path()+",") {
			t.Errorf("the upper directory is not in the mount table:\n%s", table)
		}
		return Remove(tree.At("target"))
	})
}

// Nothing is mounted or unmounted through a link.
func TestMountsFollowNoLink(t *testing.T) {
	inOwnMounts(t, func(tree *confine.Tree) error {
		if err := errors.Join(tree.At("source").Mkdir(0o755), tree.At("elsewhere").Mkdir(0o755), tree.At("link").Symlink("elsewhere")); err != nil {
			return err
		}
		source, err := open(tree.At("source"))
		if err != nil {
			return err
		}
		defer source.Close()
		mount, err := Clone(source, true)
		if err != nil {
			return err
		}
		defer mount.Close()
		if err := Attach(mount, tree.At("link")); err == nil {
			t.Error("mounted through a link")
		}
		if err := AttachWithoutDevices(mount, tree.At("elsewhere")); err != nil {
			return err
		}
		var stat unix.Statfs_t
		if err := unix.Fstatfs(int(mount.Fd()), &stat); err != nil {
			return err
		}
		if stat.Flags&unix.ST_NODEV == 0 {
			t.Error("the mount shows devices")
		}
		if err := Unmount(tree.At("link"), unix.MNT_DETACH); err == nil {
			t.Error("unmounted through a link")
		}
		return Remove(tree.At("elsewhere"))
	})
}

// A mount that is in use for a moment is unmounted after it, one that stays in use is busy.
func TestUnmountWaitsAMoment(t *testing.T) {
	inOwnMounts(t, func(tree *confine.Tree) error {
		if err := tree.At("target").Mkdir(0o755); err != nil {
			return err
		}
		mount, err := Make("tmpfs", nil, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(Attach(mount, tree.At("target")), mount.Close()); err != nil {
			return err
		}
		user, err := open(tree.At("target"))
		if err != nil {
			return err
		}
		if err := Unmount(tree.At("target"), 0); !errors.Is(err, unix.EBUSY) {
			t.Errorf("in use: %v", err)
		}
		time.AfterFunc(busyPause, func() { _ = user.Close() })
		return Unmount(tree.At("target"), 0)
	})
}
