package layer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

type entry struct {
	header  tar.Header
	content string
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.header.Size = int64(len(e.content))
		if e.header.Mode == 0 {
			e.header.Mode = 0o644
		}
		if err := w.WriteHeader(&e.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// testStore is the layers below a directory that also holds the blobs.
func testStore(t *testing.T, dir string) *Store {
	t.Helper()
	tree, err := confine.OpenTree(instance.Instance{ID: "abcdef", DataDir: dir}.Host())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	shelf, err := durable.NewShelf(tree)
	if err != nil {
		t.Fatal(err)
	}
	store, err := NewStore(tree, confine.Caller{Dir: dir}, shelf)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// A record that was torn is made again from the tree, which is whole; the torn one is kept.
func TestListMendsTornRecords(t *testing.T) {
	plain := archive(t, entry{header: tar.Header{Name: "f"}, content: "0123456789"}, entry{header: tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "f"}})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "blob"), plain, 0o600); err != nil {
		t.Fatal(err)
	}
	store := testStore(t, dir)
	made, err := store.Unpack(context.Background(), Request{BlobPath: "blob", Digest: digest(plain), DiffID: digest(plain)})
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"", `{"id":"sha`, "{}"} {
		if err := store.recordAt(made.ID).WriteFile([]byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := store.List(); err != nil || len(found) != 1 || found[0] != made {
			t.Fatalf("%q: found %v, %v; want %v", text, found, err, made)
		}
		if bad, err := store.shelf.Names(); err != nil || len(bad) != i+1 {
			t.Fatalf("%q: on the shelf: %v, %v", text, bad, err)
		}
	}
}

// unpackTest unpacks an archive below a directory that has a secret beside it.
func unpackTest(t *testing.T, plain, blob []byte) (string, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes whiteouts and must be started by root")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "blob"), blob, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := testStore(t, dir)
	r := Request{BlobPath: "blob", Digest: digest(blob), DiffID: digest(plain)}
	_, err := store.Unpack(context.Background(), r)
	if left, _ := filepath.Glob(filepath.Join(dir, "host/layers/*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if secret, _ := os.ReadFile(filepath.Join(dir, "secret")); string(secret) != "secret" {
		t.Errorf("the file beside the layer was changed to %q", secret)
	}
	return store.At(r.DiffID).Path(), err
}

func TestUnpackKeepsWhatALayerHolds(t *testing.T) {
	plain := archive(t,
		entry{header: tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o1777}},
		entry{header: tar.Header{Name: "d/f", Uid: 7, Gid: 8, Mode: 0o4755, PAXRecords: map[string]string{"SCHILY.xattr.user.note": "n", "SCHILY.xattr.trusted.overlay.redirect": "/etc"}}, content: "text"},
		entry{header: tar.Header{Name: "d/hard", Typeflag: tar.TypeLink, Linkname: "d/f"}},
		entry{header: tar.Header{Name: "d/soft", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		entry{header: tar.Header{Name: "d/.wh.gone"}},
		entry{header: tar.Header{Name: "o/.wh..wh..opq"}},
		entry{header: tar.Header{Name: "p", Typeflag: tar.TypeFifo}},
	)
	var zipped, compressed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(plain)
	_ = z.Close()
	s, _ := zstd.NewWriter(&compressed)
	_, _ = s.Write(plain)
	_ = s.Close()
	for name, blob := range map[string][]byte{"plain": plain, "gzip": zipped.Bytes(), "zstd": compressed.Bytes()} {
		t.Run(name, func(t *testing.T) {
			root, err := unpackTest(t, plain, blob)
			if err != nil {
				t.Fatal(err)
			}
			checkLayer(t, root)
		})
	}
}

func checkLayer(t *testing.T, root string) {
	t.Helper()
	var file, hard, gone, dir unix.Stat_t
	for path, stat := range map[string]*unix.Stat_t{"d/f": &file, "d/hard": &hard, "d/gone": &gone, "d": &dir} {
		if err := unix.Lstat(filepath.Join(root, path), stat); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if file.Ino != hard.Ino || file.Uid != 7 || file.Gid != 8 || file.Mode&0o7777 != 0o4755 {
		t.Errorf("file is %+v, its hard link %+v", file, hard)
	}
	if gone.Mode&unix.S_IFMT != unix.S_IFCHR || gone.Rdev != 0 {
		t.Errorf("the whiteout is %o %d", gone.Mode, gone.Rdev)
	}
	if dir.Mode&0o7777 != 0o1777 {
		t.Errorf("the directory's mode is %o", dir.Mode)
	}
	buffer := make([]byte, 16)
	if n, err := unix.Getxattr(filepath.Join(root, "o"), "trusted.overlay.opaque", buffer); err != nil || string(buffer[:n]) != "y" {
		t.Errorf("the opaque mark is %q, %v", buffer[:max(n, 0)], err)
	}
	if n, err := unix.Getxattr(filepath.Join(root, "d/f"), "user.note", buffer); err != nil || string(buffer[:n]) != "n" {
		t.Errorf("the attribute is %q, %v", buffer[:max(n, 0)], err)
	}
	if _, err := unix.Getxattr(filepath.Join(root, "d/f"), "trusted.overlay.redirect", buffer); err == nil {
		t.Error("a redirect of overlayfs was kept")
	}
}

func TestUnpackNeverLeavesTheLayer(t *testing.T) {
	cases := map[string]struct {
		entries []entry
		code    hosterr.Code
	}{
		"dots":            {[]entry{{header: tar.Header{Name: "../secret"}, content: "x"}}, hosterr.PathEscape},
		"dots in between": {[]entry{{header: tar.Header{Name: "a/../../secret"}, content: "x"}}, hosterr.PathEscape},
		"hard link out":   {[]entry{{header: tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../secret"}}}, hosterr.EntryRefused},
		"device":          {[]entry{{header: tar.Header{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}}}, hosterr.EntryRefused},
		"char device":     {[]entry{{header: tar.Header{Name: "mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}}}, hosterr.EntryRefused},
		"whiteout of dot": {[]entry{{header: tar.Header{Name: "a/.wh..."}}}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			plain := archive(t, c.entries...)
			_, err := unpackTest(t, plain, plain)
			if c.code != "" && !hosterr.Is(err, c.code) {
				t.Errorf("got %v, want %s", err, c.code)
			}
		})
	}
}

// A link of the archive is followed as it would be inside the container: with the layer as the root.
func TestUnpackConfinesLinksOfTheArchive(t *testing.T) {
	for _, target := range []string{"/", "/..", "../../..", "../../../tmp", "/proc/self/root"} {
		t.Run(target, func(t *testing.T) {
			plain := archive(t,
				entry{header: tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: target}},
				entry{header: tar.Header{Name: "out/secret"}, content: "planted"},
				entry{header: tar.Header{Name: "out/.wh.secret2"}},
			)
			root, err := unpackTest(t, plain, plain)
			if err != nil {
				return
			}
			found := ""
			_ = filepath.WalkDir(root, func(path string, _ os.DirEntry, _ error) error {
				if filepath.Base(path) == "secret" {
					found = path
				}
				return nil
			})
			if found == "" {
				t.Error("the file was planted outside the layer")
			}
		})
	}
}

func TestUnpackBoundsWhatALayerTakes(t *testing.T) {
	plain := archive(t, entry{header: tar.Header{Name: "big"}, content: "0123456789"})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "blob"), plain, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := testStore(t, dir).Unpack(context.Background(), Request{BlobPath: "blob", Digest: digest(plain), DiffID: digest(plain), UnpackedBytesMax: 9})
	if !hosterr.Is(err, hosterr.NoSpace) {
		t.Errorf("got %v, want no-space", err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add("a/b", byte(tar.TypeReg), "target")
	f.Add("../x", byte(tar.TypeSymlink), "/")
	f.Fuzz(func(t *testing.T, name string, kind byte, link string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Linkname: link, Mode: 0o644}) != nil || w.Close() != nil {
			return
		}
		_, _ = unpackTest(t, b.Bytes(), b.Bytes())
	})
}
