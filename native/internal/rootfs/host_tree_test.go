package rootfs

import (
	"os"
	"path/filepath"
	"testing"

	"agent-sandbox.dev/native/internal/confine"
	"golang.org/x/sys/unix"
)

// The tree of the built-in image has the modes, owners, links and the mask that sandboxes rely on; a second call finds it.
func TestHostTreeIsMadeOnce(t *testing.T) {
	tree, err := confine.OpenTree(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	h := &hostTree{layers: tree.At("layers"), usr: "/usr", etc: "/etc"}
	if err := h.layers.Mkdir(0o700); err != nil {
		t.Fatal(err)
	}
	dir, digest, err := h.ensure()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range hostDirs {
		info, err := os.Lstat(filepath.Join(dir.Path(), "root", name))
		if err != nil || !info.IsDir() || info.Mode() != want|os.ModeDir {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if home, err := dir.In("root/home/sandbox").Lstat(); err != nil || home.Uid != 1000 || home.Gid != 1000 {
		t.Errorf("home: %d:%d, %v", home.Uid, home.Gid, err)
	}
	if target, err := os.Readlink(filepath.Join(dir.Path(), "root/bin")); err != nil || target != "usr/bin" {
		t.Errorf("bin leads to %q, %v", target, err)
	}
	if shadow, err := dir.In("root/etc/shadow").Lstat(); err != nil || shadow.Mode&0o777 != 0o600 {
		t.Errorf("shadow: %o, %v", shadow.Mode, err)
	}
	opaque := make([]byte, 8)
	if n, err := unix.Lgetxattr(dir.In("usr/local").Path(), "trusted.overlay.opaque", opaque); err != nil || string(opaque[:n]) != "y" {
		t.Errorf("/usr/local is not masked: %v", err)
	}
	again, sameDigest, err := h.ensure()
	if err != nil || again != dir || sameDigest != digest {
		t.Errorf("the second call: %v, %s, %v", again, sameDigest, err)
	}
	if entries, err := h.layers.ReadDir(); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
