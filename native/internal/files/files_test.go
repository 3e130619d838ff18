package files

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agent-sandbox.dev/native/internal/beneath"
	"golang.org/x/sys/unix"
)

func newSpace(t testing.TB) (*Space, string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	os.MkdirAll(top+"/work", 0o755)
	os.WriteFile(top+"/secret", []byte("secret"), 0o644)
	root, err := beneath.New(top+"/work", "")
	if err != nil {
		t.Fatal(err)
	}
	return NewSpace(root), top + "/work"
}

func put(t testing.TB, s *Space, name, text string) Info {
	t.Helper()
	info, err := s.Write(name, strings.NewReader(text), WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func get(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWriteReplacesAndKeepsModeAndLink(t *testing.T) {
	s, top := newSpace(t)
	put(t, s, "a/b/c", "one")
	os.Chmod(top+"/a/b/c", 0o755)
	os.Symlink("a/b/c", top+"/link")
	put(t, s, "link", "two")
	info, _ := os.Stat(top + "/a/b/c")
	if get(t, top+"/a/b/c") != "two" || info.Mode().Perm() != 0o755 {
		t.Errorf("contents %q, mode %v", get(t, top+"/a/b/c"), info.Mode())
	}
	if target, _ := os.Readlink(top + "/link"); target != "a/b/c" {
		t.Error("the link was replaced")
	}
	if names, _ := filepath.Glob(top + "/a/b/.sandboxd*"); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	s, top := newSpace(t)
	put(t, s, "f", "old")
	_, err := s.Write("f", io.MultiReader(strings.NewReader("half"), failing{}), WriteOptions{})
	if err == nil || get(t, top+"/f") != "old" {
		t.Fatalf("error %v, contents %q", err, get(t, top+"/f"))
	}
	if entries, _ := os.ReadDir(top); len(entries) != 1 {
		t.Fatalf("left behind: %v", entries)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection lost") }

func TestConditionalWrites(t *testing.T) {
	s, top := newSpace(t)
	if _, err := s.Write("f", strings.NewReader("x"), WriteOptions{IfMatch: "*"}); !errors.Is(err, ErrPrecondition) {
		t.Errorf("If-Match on nothing: %v", err)
	}
	first, err := s.Write("f", strings.NewReader("one"), WriteOptions{IfNoneMatch: "*"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write("f", strings.NewReader("x"), WriteOptions{IfNoneMatch: "*"}); !errors.Is(err, ErrPrecondition) {
		t.Errorf("create-only on a file: %v", err)
	}
	if _, err := s.Write("f", strings.NewReader("two"), WriteOptions{IfMatch: first.ETag()}); err != nil {
		t.Error(err)
	}
	if _, err := s.Write("f", strings.NewReader("x"), WriteOptions{IfMatch: first.ETag()}); !errors.Is(err, ErrPrecondition) {
		t.Errorf("stale tag: %v", err)
	}
	if get(t, top+"/f") != "two" {
		t.Errorf("contents %q", get(t, top+"/f"))
	}
}

func TestOnlyOneOfManyConditionalWritersWins(t *testing.T) {
	s, _ := newSpace(t)
	tag := put(t, s, "f", "start")
	var group sync.WaitGroup
	wins := make(chan int, 16)
	for i := range 16 {
		group.Go(func() {
			if _, err := s.Write("f", strings.NewReader(fmt.Sprint(i)), WriteOptions{IfMatch: tag.ETag()}); err == nil {
				wins <- i
			}
		})
	}
	group.Wait()
	if len(wins) != 1 {
		t.Fatalf("%d writers won", len(wins))
	}
}

func TestAppendAndOffset(t *testing.T) {
	s, top := newSpace(t)
	for _, text := range []string{"ab", "cd"} {
		if _, err := s.Write("new/log", strings.NewReader(text), WriteOptions{Append: true}); err != nil {
			t.Fatal(err)
		}
	}
	offset := int64(1)
	if _, err := s.Write("new/log", strings.NewReader("XY"), WriteOptions{Offset: &offset}); err != nil {
		t.Fatal(err)
	}
	if get(t, top+"/new/log") != "aXYd" {
		t.Errorf("contents %q", get(t, top+"/new/log"))
	}
}

// R11: a file that is none is refused, and never waited for.
func TestOpenRefusesAFifoWithoutBlocking(t *testing.T) {
	s, top := newSpace(t)
	unix.Mkfifo(top+"/fifo", 0o644)
	if _, _, err := s.Open("fifo"); !errors.Is(err, ErrNotRegular) {
		t.Fatal(err)
	}
}

func TestRemove(t *testing.T) {
	s, top := newSpace(t)
	put(t, s, "d/e/f", "x")
	put(t, s, "kept", "x")
	os.Symlink("kept", top+"/link")
	os.Symlink(filepath.Dir(top), top+"/d/out")
	if err := s.Remove("link", false); err != nil || get(t, top+"/kept") != "x" {
		t.Errorf("removing a link: %v", err)
	}
	if err := s.Remove("d", false); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("non-empty directory: %v", err)
	}
	if err := s.Remove("d", true); err != nil {
		t.Error(err)
	}
	if get(t, filepath.Dir(top)+"/secret") != "secret" {
		t.Error("removal followed a link")
	}
	if err := s.Remove("gone", true); Explain(err).Class != NotFound {
		t.Errorf("missing: %v", err)
	}
	if err := s.Remove(".", false); !errors.Is(err, ErrRootRemoval) {
		t.Errorf("root: %v", err)
	}
	if err := s.Remove("/", true); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(top); err != nil || len(entries) != 0 {
		t.Errorf("root after clearing: %v %v", entries, err)
	}
}

func TestMoveAndCopy(t *testing.T) {
	s, top := newSpace(t)
	put(t, s, "d/a", "A")
	put(t, s, "b", "B")
	os.Symlink("a", top+"/d/link")
	if _, err := s.Move("b", "d/a", false); Explain(err).Class != Conflict {
		t.Errorf("move onto a file: %v", err)
	}
	if _, err := s.Move("d", "d/x", false); !errors.Is(err, ErrIntoItself) {
		t.Errorf("into itself: %v", err)
	}
	if _, err := s.Copy("d", "e", CopyOptions{}); !errors.Is(err, ErrNeedsRecurse) {
		t.Errorf("directory without recursive: %v", err)
	}
	copied, err := s.Copy("d", "new/e", CopyOptions{Recursive: true})
	if err != nil || copied.Files != 3 || copied.Bytes != 1 {
		t.Errorf("copied %+v: %v", copied, err)
	}
	if target, _ := os.Readlink(top + "/new/e/link"); target != "a" || get(t, top+"/new/e/a") != "A" {
		t.Error("the copy differs")
	}
	if _, err := s.Move("b", "new/e/a", true); err != nil || get(t, top+"/new/e/a") != "B" {
		t.Errorf("move: %v", err)
	}
	if _, err := s.Stat("b", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("source after the move: %v", err)
	}
}

func TestMakeDir(t *testing.T) {
	s, _ := newSpace(t)
	if _, err := s.MakeDir("a/b", 0o755, false); Explain(err).Class != NotFound {
		t.Errorf("without parents: %v", err)
	}
	info, err := s.MakeDir("a/b", 0o700, true)
	if err != nil || info.Mode() != 0o700 {
		t.Errorf("mode %o: %v", info.Mode(), err)
	}
	if _, err := s.MakeDir("a/b", 0o700, true); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := s.MakeDir("a/b", 0o700, false); Explain(err).Class != Conflict {
		t.Errorf("again without parents: %v", err)
	}
}

func TestListPages(t *testing.T) {
	s, _ := newSpace(t)
	for _, name := range []string{"a", "b/c", "b/d/e", "b-x", "z"} {
		put(t, s, name, "")
	}
	want := []string{"a", "b", "b/c", "b/d", "b/d/e", "b-x", "z"}
	for size := 1; size <= 8; size++ {
		var got []string
		for after := ""; ; {
			page, next, err := s.List(".", 10, size, after)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range page {
				got = append(got, strings.TrimPrefix(one.Path, s.Root.Path()+"/"))
			}
			if after = next; next == "" {
				break
			}
		}
		if len(got) != len(want) {
			t.Fatalf("page size %d: %v", size, got)
		}
		seen := map[string]bool{}
		for _, name := range got {
			seen[name] = true
		}
		for _, name := range want {
			if !seen[name] {
				t.Fatalf("page size %d lacks %s: %v", size, name, got)
			}
		}
	}
	flat, _, _ := s.List(".", 1, 100, "")
	if len(flat) != 4 {
		t.Errorf("depth 1: %d entries", len(flat))
	}
}

func TestGlob(t *testing.T) {
	s, top := newSpace(t)
	for _, name := range []string{"main.go", "x/a.go", "x/y/b.go", "x/y/b.ts", "x/y/z/c.tsx", ".hidden/d.go"} {
		put(t, s, name, "")
	}
	os.Symlink("/etc", top+"/out")
	for pattern, want := range map[string]string{
		"*.go": "main.go", "**/*.go": ".hidden/d.go main.go x/a.go x/y/b.go", "x/*/*.{go,ts}": "x/y/b.go x/y/b.ts", "x/**": "x x/a.go x/y x/y/b.go x/y/b.ts x/y/z x/y/z/c.tsx",
		"/x/y/?.ts": "x/y/b.ts", "**/[ab].*": "x/a.go x/y/b.go x/y/b.ts", "out/*": "", "nothing": "", "{main,x/{a,q}}.go": "main.go x/a.go",
	} {
		found, _, err := s.Glob(t.Context(), "", pattern, 100)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
		var names []string
		for _, one := range found {
			names = append(names, strings.TrimPrefix(one.Path, top+"/"))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
	for _, pattern := range []string{"", "[", "{a", "../x", strings.Repeat("{a,b}", 20)} {
		if _, _, err := s.Glob(t.Context(), "", pattern, 1); !errors.Is(err, ErrBadPattern) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	if found, truncated, _ := s.Glob(t.Context(), "", "**", 3); len(found) != 3 || !truncated {
		t.Errorf("limit: %d %v", len(found), truncated)
	}
}

func TestSearch(t *testing.T) {
	s, top := newSpace(t)
	put(t, s, "a.txt", "first\nfind me here\nlast")
	put(t, s, "d/b.txt", "FIND me\nfind.me")
	put(t, s, "bin", "find\x00me")
	put(t, s, "node_modules/c.txt", "find me")
	var got []string
	report := func(m Match) error {
		got = append(got, fmt.Sprintf("%s:%d:%d:%s", strings.TrimPrefix(m.Path, top+"/"), m.Line, m.Column, m.Text))
		return nil
	}
	summary, err := s.Search(t.Context(), ".", SearchOptions{Pattern: "find.me", Exclude: []string{"node_modules"}, Limit: 10}, report)
	if err != nil || strings.Join(got, "|") != "a.txt:2:1:find me here|d/b.txt:2:1:find.me" || summary.Skipped != 1 || summary.Searched != 2 {
		t.Errorf("%v %+v %v", got, summary, err)
	}
	got = nil
	summary, _ = s.Search(t.Context(), ".", SearchOptions{Pattern: "find.me", Literal: true, IgnoreCase: true, Include: []string{"*.txt"}, Limit: 10}, report)
	if strings.Join(got, "|") != "d/b.txt:2:1:find.me" || summary.Matches != 1 {
		t.Errorf("literal: %v", got)
	}
	if summary, _ = s.Search(t.Context(), ".", SearchOptions{Pattern: "find", Limit: 1}, report); !summary.Truncated {
		t.Error("the limit did not show")
	}
	if _, err := s.Search(t.Context(), ".", SearchOptions{Pattern: "("}, report); !errors.Is(err, ErrBadPattern) {
		t.Error(err)
	}
}

func TestChecksum(t *testing.T) {
	s, _ := newSpace(t)
	put(t, s, "f", "abc")
	digest, algorithm, size, err := s.Checksum(t.Context(), "f", "")
	if err != nil || algorithm != "sha256" || size != 3 || digest != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("%s %s %d %v", digest, algorithm, size, err)
	}
	if digest, _, _, _ = s.Checksum(t.Context(), "f", "md5"); digest != "900150983cd24fb0d6963f7d28e17f72" {
		t.Error(digest)
	}
	if _, _, _, err = s.Checksum(t.Context(), "f", "crc"); !errors.Is(err, ErrBadAlgorithm) {
		t.Error(err)
	}
}

func TestArchiveRoundTrip(t *testing.T) {
	s, top := newSpace(t)
	put(t, s, "src/a", "A")
	put(t, s, "src/d/b", "B")
	os.Chmod(top+"/src/a", 0o751)
	os.Symlink("a", top+"/src/link")
	var packed bytes.Buffer
	if err := s.PackArchive(t.Context(), "src", &packed); err != nil {
		t.Fatal(err)
	}
	if n, err := s.UnpackArchive("dst/x", bytes.NewReader(packed.Bytes()), UnpackOptions{}); err != nil || n != 4 {
		t.Fatalf("%d entries: %v", n, err)
	}
	info, _ := os.Stat(top + "/dst/x/a")
	if get(t, top+"/dst/x/d/b") != "B" || info.Mode().Perm() != 0o751 || get(t, top+"/dst/x/link") != "A" {
		t.Error("the copy differs")
	}
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	writer.Write(packed.Bytes())
	writer.Close()
	if _, err := s.UnpackArchive("zipped", &zipped, UnpackOptions{}); err != nil || get(t, top+"/zipped/a") != "A" {
		t.Errorf("gzip: %v", err)
	}
}

func TestArchiveCannotLeaveItsDirectory(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"dots":       {{Name: "../evil", Typeflag: tar.TypeReg}},
		"link":       {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/evil", Typeflag: tar.TypeReg}},
		"absolute":   {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, {Name: "l/evil", Typeflag: tar.TypeReg}},
		"hard link":  {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside"}},
		"device":     {{Name: "dev", Typeflag: tar.TypeChar}},
		"fifo":       {{Name: "fifo", Typeflag: tar.TypeFifo}},
		"hard chain": {{Name: "s", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "s"}},
	} {
		s, top := newSpace(t)
		put(t, s, "outside", "untouched")
		var packed bytes.Buffer
		writer := tar.NewWriter(&packed)
		for _, header := range headers {
			writer.WriteHeader(&header)
		}
		writer.Close()
		if _, err := s.UnpackArchive("in", &packed, UnpackOptions{}); err == nil {
			t.Errorf("%s: unpacked", name)
		}
		if _, err := os.Stat(top + "/evil"); err == nil || get(t, top+"/outside") != "untouched" {
			t.Errorf("%s: left its directory", name)
		}
	}
}

// TestWritesNeverEscapeSwappedLinks makes 10,000 calls of every kind while a hostile loop swaps a directory and a link (R10).
func TestWritesNeverEscapeSwappedLinks(t *testing.T) {
	s, top := newSpace(t)
	outside := filepath.Dir(top) + "/outside"
	for _, name := range []string{outside, top + "/target"} {
		os.MkdirAll(name+"/sub", 0o755)
		os.WriteFile(name+"/f", []byte(filepath.Base(name)), 0o644)
	}
	os.Symlink(outside, top+"/link")
	stop := make(chan struct{})
	var hostile sync.WaitGroup
	hostile.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, top+"/target", unix.AT_FDCWD, top+"/link", unix.RENAME_EXCHANGE)
			}
		}
	})
	worked := 0
	for i := range 10_000 {
		var err error
		switch i % 5 {
		case 0:
			_, err = s.Write("target/f", strings.NewReader("target"), WriteOptions{})
		case 1:
			_, err = s.Write("target/new/deep", strings.NewReader("x"), WriteOptions{})
		case 2:
			err = s.Remove("target/new", true)
		case 3:
			_, err = s.Copy("target/f", "target/sub/g", CopyOptions{Overwrite: true})
		case 4:
			_, err = s.Move("target/sub/g", "target/sub/h", true)
		}
		if err == nil {
			worked++
		}
	}
	close(stop)
	hostile.Wait()
	if worked == 0 {
		t.Fatal("no call succeeded")
	}
	left := []string{}
	filepath.Walk(outside, func(name string, _ fs.FileInfo, _ error) error {
		left = append(left, strings.TrimPrefix(name, outside))
		return nil
	})
	if strings.Join(left, " ") != " /f /sub" || get(t, outside+"/f") != "outside" {
		t.Fatalf("outside holds %v, f is %q", left, get(t, outside+"/f"))
	}
	t.Logf("%d of 10,000 calls succeeded", worked)
}

func FuzzPattern(f *testing.F) {
	f.Add("**/*.{go,ts}", "a/b.go")
	f.Add("{a,{b,c}}/[x-z]?", "c/y1")
	f.Add("[", "")
	f.Fuzz(func(t *testing.T, text, name string) {
		if compiled, err := compilePattern(text); err == nil && len(name) < 200 && len(text) < 50 {
			compiled.match(name)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	var packed bytes.Buffer
	writer := tar.NewWriter(&packed)
	writer.WriteHeader(&tar.Header{Name: "a/../../b", Typeflag: tar.TypeSymlink, Linkname: "/etc"})
	writer.Close()
	f.Add(packed.Bytes())
	f.Fuzz(func(t *testing.T, body []byte) {
		s, top := newSpace(t)
		s.UnpackArchive("in", bytes.NewReader(body), UnpackOptions{})
		if entries, _ := os.ReadDir(top); len(entries) > 1 {
			t.Fatalf("something left the directory: %v", entries)
		}
	})
}
