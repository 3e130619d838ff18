package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FuzzUnpackBytes unpacks any bytes as a layer; whatever they are, nothing outside the layer's directory changes.
func FuzzUnpackBytes(f *testing.F) {
	add := func(entries ...entry) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, e := range entries {
			e.header.Size, e.header.Mode = int64(len(e.content)), 0o644
			if err := w.WriteHeader(&e.header); err != nil {
				f.Fatal(err)
			}
			if _, err := w.Write([]byte(e.content)); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	add(entry{tar.Header{Name: "a/b", Typeflag: tar.TypeReg}, "x"})
	add(entry{tar.Header{Name: "l", Linkname: "../secret", Typeflag: tar.TypeSymlink}, ""}, entry{tar.Header{Name: "l", Typeflag: tar.TypeReg}, "y"})
	add(entry{tar.Header{Name: "../secret", Typeflag: tar.TypeReg}, "z"}, entry{tar.Header{Name: "h", Linkname: "/../secret", Typeflag: tar.TypeLink}, ""})
	add(entry{tar.Header{Name: "d/", Typeflag: tar.TypeDir}, ""}, entry{tar.Header{Name: "d/.wh..wh..opq", Typeflag: tar.TypeReg}, ""}, entry{tar.Header{Name: ".wh.d", Typeflag: tar.TypeReg}, ""})
	top := f.TempDir()
	secret := filepath.Join(top, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, blob []byte) {
		dir, err := os.MkdirTemp(top, "layer-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		root, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		u := &unpacker{root: root, bytesMax: 1 << 20, dirTimes: map[string]time.Time{}}
		_ = u.unpack(context.Background(), tar.NewReader(bytes.NewReader(blob)))
		if text, _ := os.ReadFile(secret); string(text) != "secret" {
			t.Fatalf("the file beside the layer is %q", text)
		}
		if info, err := os.Lstat(secret); err != nil || info.Mode() != 0o600 {
			t.Fatalf("the file beside the layer is %v, %v", info, err)
		}
		if names, _ := filepath.Glob(top + "/[^l]*"); len(names) != 1 {
			t.Fatalf("beside the layer lies %v", names)
		}
	})
}
