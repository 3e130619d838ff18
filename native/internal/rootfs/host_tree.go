package rootfs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"agent-sandbox.dev/native/internal/confine"
	"golang.org/x/sys/unix"
)

// hostTree makes the lower directories of the built-in image: a root with symbolic links into /usr and a synthetic /etc, and a mask for /usr/local.
type hostTree struct {
	// layers is the directory that the trees are made in.
	layers   confine.Entry
	usr, etc string
	mu       sync.Mutex
}

// What programs under /usr expect in /etc and what holds nothing of this machine's own: loader cache, alternatives' links, public certificates, tables.
var hostEtcPaths = []string{
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf", "pki/tls/certs", "pki/ca-trust",
	"services", "protocols", "mime.types", "magic", "terminfo", "login.defs", "debian_version", "os-release", "redhat-release", "alpine-release",
	"python3", "perl", "bash.bashrc", "profile.d/bash_completion.sh", "inputrc", "skel", "gai.conf", "localtime", "locale.alias", "fonts", "java-21-openjdk", "java-17-openjdk",
}

var hostEtcFiles = map[string]string{
	"passwd":        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\n",
	"group":         "root:x:0:\ntty:x:5:\nnogroup:x:65534:\nsandbox:x:1000:\n",
	"shadow":        "root:*:19000:0:99999:7:::\nsandbox:*:19000:0:99999:7:::\n",
	"hosts":         "127.0.0.1\tlocalhost\n",
	"hostname":      "sandbox\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n",
	"resolv.conf":   "",
	"machine-id":    "",
	"shells":        "/bin/sh\n/bin/bash\n",
	"profile":       "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH\n[ \"$(id -u)\" = 0 ] && PS1='# ' || PS1='$ '\n",
}

var hostDirs = map[string]os.FileMode{
	"boot": 0o755, "dev": 0o755, "etc": 0o755, "home": 0o755, "home/sandbox": 0o755, "media": 0o755, "mnt": 0o755, "opt": 0o755, "proc": 0o555, "root": 0o700,
	"run": 0o755, "srv": 0o755, "sys": 0o555, "tmp": 0o777 | os.ModeSticky, "usr": 0o755, "var": 0o755, "var/cache": 0o755, "var/lib": 0o755, "var/log": 0o755,
	"var/spool": 0o755, "var/tmp": 0o777 | os.ModeSticky, "workspace": 0o777,
}

// One file of /etc that is larger is not one of those we know.
const hostEtcBytesMax = 4 << 20

// digest changes when the machine's packages do, and costs a handful of stat calls.
func (h *hostTree) digest() (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, "tree 1", h.usr)
	for _, name := range []string{
		h.usr, h.usr + "/bin", h.usr + "/sbin", h.usr + "/lib", h.usr + "/lib64", h.usr + "/lib/x86_64-linux-gnu", h.usr + "/lib/aarch64-linux-gnu", h.usr + "/share",
		"/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite", "/lib/apk/db/installed", "/var/lib/pacman/local",
		h.etc + "/ld.so.cache", h.etc + "/alternatives", h.etc + "/ssl/certs", h.etc + "/os-release",
	} {
		var stat unix.Stat_t
		if err := unix.Stat(name, &stat); err != nil {
			continue
		}
		fmt.Fprintln(sum, name, stat.Ino, stat.Size, stat.Mtim.Sec, stat.Mtim.Nsec)
	}
	return "host:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// ensure makes the tree of the current digest, or finds it, and returns its directory.
func (h *hostTree) ensure() (dir confine.Entry, digest string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	digest, err = h.digest()
	if err != nil {
		return dir, "", err
	}
	dir = h.layers.In("host-" + strings.TrimPrefix(digest, "host:")[:16])
	if exists, err := dir.Exists(); err != nil || exists {
		return dir, digest, err
	}
	work := dir.WithSuffix(".tmp")
	if err := work.RemoveAll(); err != nil {
		return dir, "", err
	}
	if err := h.make(work); err != nil {
		return dir, "", errors.Join(err, work.RemoveAll())
	}
	return dir, digest, work.Rename(dir)
}

// make fills a new directory; everything in it is made from its descriptor.
func (h *hostTree) make(work confine.Entry) error {
	if err := work.Mkdir(0o755); err != nil {
		return err
	}
	dir, err := work.OpenDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	root, err := os.OpenRoot(confine.ProcPath(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	return errors.Join(h.makeUsr(root), h.makeRoot(root))
}

// makeUsr masks /usr/local with an empty directory.
func (h *hostTree) makeUsr(root *os.Root) error {
	if err := root.MkdirAll("usr/local", 0o755); err != nil {
		return err
	}
	local, err := root.Open("usr/local")
	if err != nil {
		return err
	}
	defer local.Close()
	return unix.Fsetxattr(int(local.Fd()), "trusted.overlay.opaque", []byte("y"), 0)
}

func (h *hostTree) makeRoot(tree *os.Root) error {
	if err := tree.Mkdir("root", 0o755); err != nil {
		return err
	}
	root, err := tree.OpenRoot("root")
	if err != nil {
		return err
	}
	defer root.Close()
	for name, mode := range hostDirs {
		if err := errors.Join(root.MkdirAll(name, 0o755), root.Chmod(name, mode)); err != nil {
			return err
		}
	}
	if err := root.Lchown("home/sandbox", 1000, 1000); err != nil {
		return err
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if _, err := os.Stat(filepath.Join(h.usr, name)); err != nil {
			continue
		}
		if err := root.Symlink("usr/"+name, name); err != nil {
			return err
		}
	}
	if err := errors.Join(root.Symlink("/run", "var/run"), root.Symlink("/proc/self/mounts", "etc/mtab")); err != nil {
		return err
	}
	return h.makeEtc(root)
}

func (h *hostTree) makeEtc(root *os.Root) error {
	for _, name := range hostEtcPaths {
		if err := copyPublic(filepath.Join(h.etc, name), root, filepath.Join("etc", name)); err != nil {
			return err
		}
	}
	for name, content := range hostEtcFiles {
		mode := os.FileMode(0o644)
		if name == "shadow" {
			mode = 0o600
		}
		if err := root.WriteFile("etc/"+name, []byte(content), mode); err != nil {
			return err
		}
	}
	return nil
}

// copyPublic copies links and the regular files that every user of this machine may read; anything else is left out.
func copyPublic(from string, root *os.Root, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return copyEntry(path, root, filepath.Join(to, relative), info)
	})
}

func copyEntry(from string, root *os.Root, to string, info fs.FileInfo) error {
	if err := root.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return root.MkdirAll(to, 0o755)
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return root.Symlink(target, to)
	case !info.Mode().IsRegular(), info.Mode().Perm()&0o004 == 0, info.Size() > hostEtcBytesMax:
		return nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return root.WriteFile(to, content, info.Mode().Perm()&0o755)
}
