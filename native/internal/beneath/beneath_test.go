package beneath

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// newRoot makes a root with a file in it and, next to it, a secret that must stay out of reach.
func newRoot(t testing.TB) (*Root, string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"workspace/f.txt": "inside", "workspace/dir/g.txt": "inside", "outside/secret": "secret", "workspace-evil/f": "secret"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := New(filepath.Join(top, "workspace"), "")
	if err != nil {
		t.Fatal(err)
	}
	return root, top
}

func link(t testing.TB, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func TestResolve(t *testing.T) {
	root, top := newRoot(t)
	work := root.Path()
	link(t, "../outside", work+"/out")
	link(t, top+"/outside", work+"/out-absolute")
	link(t, "dir", work+"/in")
	link(t, work+"/dir", work+"/in-absolute")
	link(t, "../workspace/dir", work+"/in-around")
	link(t, "loop", work+"/loop")
	link(t, "nowhere", work+"/dangling")
	link(t, "dir/../f.txt", work+"/dotted")
	link(t, "..", work+"/dir/up")
	cases := []struct {
		name, want string
		err        error
	}{
		{"f.txt", "f.txt", nil}, {"/f.txt", "f.txt", nil}, {work + "/f.txt", "f.txt", nil}, {"", "", nil}, {".", "", nil}, {"/", "", nil}, {work, "", nil},
		{"sub/dir/new.txt", "sub/dir/new.txt", nil}, {"/workspace-evil/f", "workspace-evil/f", nil}, {"dir/../f.txt", "f.txt", nil},
		{"../etc/passwd", "", ErrEscapes}, {"a/../../etc/passwd", "", ErrEscapes}, {"..", "", ErrEscapes}, {"../workspace-evil/f", "", ErrEscapes},
		{"out/secret", "", ErrEscapes}, {"out/new", "", ErrEscapes}, {"out/sub/new", "", ErrEscapes}, {"out", "", ErrEscapes}, {"out-absolute/secret", "", ErrEscapes},
		{"in/g.txt", "dir/g.txt", nil}, {"in-absolute/g.txt", "dir/g.txt", nil}, {"in-around/g.txt", "dir/g.txt", nil}, {"dotted", "f.txt", nil},
		{"dir/up/f.txt", "f.txt", nil}, {"dir/up", "", nil}, {"dangling", "nowhere", nil}, {"loop", "", unix.ELOOP}, {"f.txt/x", "", unix.ENOTDIR}, {"a\x00b", "", ErrInvalid},
	}
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, "/", "|"), func(t *testing.T) {
			place, err := root.Resolve(c.name, true)
			if c.err != nil {
				if !errors.Is(err, c.err) {
					t.Fatalf("error %v, want %v", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer place.Close()
			if want := filepath.Join(work, c.want); place.Path() != want {
				t.Fatalf("resolved to %s, want %s", place.Path(), want)
			}
		})
	}
}

func TestResolveOfWholeFileSystemStartsAtBase(t *testing.T) {
	top, _ := filepath.EvalSymlinks(t.TempDir())
	root, err := New("/", top)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": top + "/a", "../x": filepath.Dir(top) + "/x", "/etc": "/etc", "../../../../../../..": "/", "/..": "/"} {
		place, err := root.Resolve(name, true)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if place.Path() != want {
			t.Errorf("%s resolved to %s, want %s", name, place.Path(), want)
		}
		place.Close()
	}
}

func TestMakeParentsDoesNotFollowALinkPutInTheWay(t *testing.T) {
	root, top := newRoot(t)
	place, err := root.Resolve("a/b/c", true)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	link(t, top+"/outside", root.Path()+"/a")
	if err := place.MakeParents(0o755); err == nil {
		t.Fatal("parents were made through a link")
	}
	if _, err := os.Stat(top + "/outside/b"); err == nil {
		t.Fatal("a directory appeared outside the root")
	}
}

// TestSwappedLinksNeverEscape opens 10,000 files while a hostile loop swaps directories and links under them.
func TestSwappedLinksNeverEscape(t *testing.T) {
	root, top := newRoot(t)
	stop := make(chan struct{})
	var hostile sync.WaitGroup
	hostile.Add(1)
	go func() {
		defer hostile.Done()
		swapForever(top, stop)
	}()
	opened, refused := 0, 0
	for range 10_000 {
		file, place, err := root.OpenFile("target/secret", unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			refused++
			continue
		}
		text, _ := io.ReadAll(file)
		file.Close()
		place.Close()
		if string(text) != "harmless" {
			t.Fatalf("read %q through a swapped link", text)
		}
		opened++
	}
	close(stop)
	hostile.Wait()
	if opened == 0 || refused == 0 {
		t.Fatalf("the race was not exercised: %d opened, %d refused", opened, refused)
	}
	t.Logf("%d opened, %d refused", opened, refused)
}

// swapForever makes workspace/target now a directory with a harmless file, now a link to the outside, as fast as it can.
func swapForever(top string, stop chan struct{}) {
	work := filepath.Join(top, "workspace")
	os.MkdirAll(work+"/real", 0o755)
	os.WriteFile(work+"/real/secret", []byte("harmless"), 0o644)
	os.Symlink(top+"/outside", work+"/link")
	os.Rename(work+"/real", work+"/target")
	for {
		select {
		case <-stop:
			return
		default:
		}
		unix.Renameat2(unix.AT_FDCWD, work+"/target", unix.AT_FDCWD, work+"/link", unix.RENAME_EXCHANGE)
	}
}

func FuzzResolve(f *testing.F) {
	for _, seed := range []string{"f.txt", "../etc/passwd", "out/secret", "in/../../outside/secret", "dir/up/up/f.txt", "//", "a\x00", strings.Repeat("x/", 200), "out-absolute/../f.txt"} {
		f.Add(seed, "../outside")
		f.Add(seed, "/etc")
	}
	root, top := newRoot(f)
	f.Fuzz(func(t *testing.T, name, target string) {
		if strings.IndexByte(target, 0) < 0 && target != "" {
			os.Remove(root.Path() + "/fuzz")
			os.Symlink(target, root.Path()+"/fuzz")
		}
		for _, follow := range []bool{true, false} {
			place, err := root.Resolve(name, follow)
			if err != nil {
				continue
			}
			if got := place.Path(); got != root.Path() && !strings.HasPrefix(got, root.Path()+"/") {
				t.Fatalf("%q resolved to %q, outside %q", name, got, root.Path())
			}
			actual, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(place.Directory()))
			if err == nil && actual != root.Path() && !strings.HasPrefix(actual, root.Path()+"/") {
				t.Fatalf("%q holds a descriptor of %q, outside %q", name, actual, top)
			}
			place.Close()
		}
	})
}
