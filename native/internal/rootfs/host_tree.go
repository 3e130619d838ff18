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

	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// hostTree makes the lower directories of the built-in image: a root with symbolic links into /usr and a synthetic /etc, and a mask for /usr/local.
type hostTree struct {
	inst instance.Instance
	usr  string
	etc  string
	mu   sync.Mutex
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
func (h *hostTree) ensure() (dir, digest string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	digest, err = h.digest()
	if err != nil {
		return "", "", err
	}
	dir = h.inst.Host("layers", "host-"+strings.TrimPrefix(digest, "host:")[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir, digest, nil
	}
	work := dir + ".tmp"
	if err := os.RemoveAll(work); err != nil {
		return "", "", err
	}
	if err := errors.Join(h.makeUsr(filepath.Join(work, "usr")), h.makeRoot(filepath.Join(work, "root"))); err != nil {
		return "", "", errors.Join(err, os.RemoveAll(work))
	}
	return dir, digest, os.Rename(work, dir)
}

// makeUsr masks /usr/local with an empty directory.
func (h *hostTree) makeUsr(dir string) error {
	local := filepath.Join(dir, "local")
	if err := os.MkdirAll(local, 0o755); err != nil {
		return err
	}
	return unix.Setxattr(local, "trusted.overlay.opaque", []byte("y"), 0)
}

func (h *hostTree) makeRoot(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, mode := range hostDirs {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode)); err != nil {
			return err
		}
	}
	if err := os.Chown(filepath.Join(dir, "home/sandbox"), 1000, 1000); err != nil {
		return err
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if _, err := os.Stat(filepath.Join(h.usr, name)); err != nil {
			continue
		}
		if err := os.Symlink("usr/"+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Symlink("/run", filepath.Join(dir, "var/run")), os.Symlink("/proc/self/mounts", filepath.Join(dir, "etc/mtab"))); err != nil {
		return err
	}
	return h.makeEtc(filepath.Join(dir, "etc"))
}

func (h *hostTree) makeEtc(etc string) error {
	for _, name := range hostEtcPaths {
		if err := copyPublic(filepath.Join(h.etc, name), filepath.Join(etc, name)); err != nil {
			return err
		}
	}
	for name, content := range hostEtcFiles {
		mode := os.FileMode(0o644)
		if name == "shadow" {
			mode = 0o600
		}
		if err := os.WriteFile(filepath.Join(etc, name), []byte(content), mode); err != nil {
			return err
		}
	}
	return nil
}

// copyPublic copies links and the regular files that every user of this machine may read; anything else is left out.
func copyPublic(from, to string) error {
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
		target := filepath.Join(to, relative)
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return copyEntry(path, target, info)
	})
}

func copyEntry(from, to string, info fs.FileInfo) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return os.MkdirAll(to, 0o755)
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !info.Mode().IsRegular(), info.Mode().Perm()&0o004 == 0, info.Size() > hostEtcBytesMax:
		return nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm()&0o755)
}
