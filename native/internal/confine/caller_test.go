package confine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// nobodys is a user that owns nothing on the machine.
const nobodys = 54321

func caller(t *testing.T) Caller {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test takes the rights of another user and must be started by root")
	}
	base, err := os.MkdirTemp("", "caller-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir := filepath.Join(base, "theirs")
	for _, err := range []error{os.Chmod(base, 0o711), os.Mkdir(dir, 0o700), os.Chown(dir, nobodys, nobodys)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return Caller{Dir: dir, UID: nobodys, GID: nobodys}
}

func canary(t *testing.T, c Caller) string {
	t.Helper()
	name := filepath.Join(filepath.Dir(c.Dir), "canary")
	if err := os.WriteFile(name, []byte("secret"), 0o640); err != nil {
		t.Fatal(err)
	}
	return name
}

// Whatever the caller plants, it gets nothing that it could not open by itself. A hard link to root's file stands for kernels that let anybody
// make one.
func TestCallerOpensOnlyWhatItCouldByItself(t *testing.T) {
	c := caller(t)
	secret := canary(t, c)
	if err := os.Link(secret, filepath.Join(c.Dir, "hard")); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"soft": secret, "up": "..", "self": "/proc/self"} {
		if err := os.Symlink(target, filepath.Join(c.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(c.Dir, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(c.Dir, "fifo"), nobodys, nobodys); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]hosterr.Code{
		"hard": hosterr.PermissionDenied, "soft": hosterr.PathEscape, "up/canary": hosterr.PathEscape, "self/status": hosterr.PathEscape, "../canary": hosterr.PathEscape,
		secret: hosterr.InvalidArgument, "": hosterr.InvalidArgument, "a\x00b": hosterr.InvalidArgument, ".": hosterr.InvalidArgument, "fifo": hosterr.InvalidArgument, "none": hosterr.NotFound,
	} {
		if f, err := c.OpenFile("path", name, unix.O_RDONLY, 0); !hosterr.Is(err, want) {
			t.Errorf("%q: want %s, got %v, %v", name, want, f, err)
		}
	}
	for _, name := range []string{"hard", "soft", "../canary"} {
		if _, err := c.OpenFile("path", name, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o640); err == nil {
			t.Errorf("%q: opened for writing", name)
		}
	}
	var stat unix.Stat_t
	if err := unix.Stat(secret, &stat); err != nil || stat.Uid != 0 || stat.Mode&0o7777 != 0o640 {
		t.Fatalf("the canary is %d %o, %v", stat.Uid, stat.Mode, err)
	}
}

func TestCallerOwnsWhatItCreates(t *testing.T) {
	c := caller(t)
	f, err := c.OpenFile("path", "log", unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil || stat.Uid != nobodys || stat.Gid != nobodys {
		t.Fatalf("it belongs to %d:%d, %v", stat.Uid, stat.Gid, err)
	}
	if _, err := io.WriteString(f, "line"); err != nil {
		t.Fatal(err)
	}
	// No other thread of ours has lost its rights.
	if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "line" {
		t.Fatal(string(text), err)
	}
}

func TestRootDirRefusesWhatOthersCouldReplace(t *testing.T) {
	c := caller(t)
	base := filepath.Dir(c.Dir)
	if err := RootDir(filepath.Join(base, "a", "b"), 0o710, 12); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(base, "a", "b"), &stat); err != nil || stat.Mode&0o7777 != 0o710 || stat.Gid != 12 {
		t.Fatalf("it is %o of group %d, %v", stat.Mode, stat.Gid, err)
	}
	open := filepath.Join(base, "open")
	for _, err := range []error{os.Mkdir(open, 0o700), os.Chmod(open, 0o777), os.Symlink("a", filepath.Join(base, "mine")), os.Symlink("a", filepath.Join(base, "theirlink")), os.Lchown(filepath.Join(base, "theirlink"), nobodys, nobodys)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := RootDir(filepath.Join(base, "mine", "b"), 0o700, 0); err != nil {
		t.Fatalf("a link of root's: %v", err)
	}
	for _, name := range []string{filepath.Join(c.Dir, "below"), filepath.Join(open, "below"), filepath.Join(base, "theirlink", "b"), filepath.Join(canary(t, c), "below")} {
		if err := RootDir(name, 0o700, 0); !hosterr.Is(err, hosterr.PermissionDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCallerRemovesAFileOfItsDirectoryAndNoOther(t *testing.T) {
	c := caller(t)
	secret := canary(t, c)
	if err := errors.Join(os.Link(secret, filepath.Join(c.Dir, "hard")), os.Symlink(secret, filepath.Join(c.Dir, "soft"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hard", "soft", "../canary", secret, "none"} {
		if err := c.RemoveFile("path", name); err == nil {
			t.Errorf("%q was removed", name)
		}
	}
	// What a runtime has given to root is still a name in the caller's own directory.
	if err := os.WriteFile(filepath.Join(c.Dir, "log"), []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveFile("path", "log"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(secret); err != nil || len(text) == 0 {
		t.Fatalf("the canary is %q, %v", text, err)
	}
}
