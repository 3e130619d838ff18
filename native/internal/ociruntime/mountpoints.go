package ociruntime

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// asideMax bounds the search for a name to move something to.
const asideMax = 100

// clearMountPoints takes out of a root file system what keeps the runtime from mounting, and from entering the working directory: a sandbox that slept
// may have put a link that leads nowhere, or a file, where a directory on the way there has to be, and could never be woken again. Links are followed as the sandbox would, never out of
// its root; one that leads nowhere goes, anything else is moved aside. What is missing is left to the runtime to make.
func clearMountPoints(rootfs confine.Entry, mounts []ociMount, directory string) error {
	root, err := rootfs.Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range mounts {
		wanted := uint32(unix.S_IFDIR)
		if m.isFile {
			wanted = unix.S_IFREG
		}
		if err := clearWay(root, m.Destination, wanted); err != nil {
			return fmt.Errorf("mount point %s: %w", m.Destination, err)
		}
	}
	if err := clearWay(root, directory, unix.S_IFDIR); err != nil {
		return fmt.Errorf("working directory %s: %w", directory, err)
	}
	return nil
}

// clearWay looks at one component of a path after the other; the last has to be of a kind, those before it directories.
func clearWay(root *os.File, target string, wanted uint32) error {
	clean := strings.TrimPrefix(path.Clean("/"+target), "/")
	if clean == "" {
		return nil
	}
	parts := strings.Split(clean, "/")
	for i := range parts {
		kind := uint32(unix.S_IFDIR)
		if i == len(parts)-1 {
			kind = wanted
		}
		there, err := isUsable(root, path.Join(parts[:i+1]...), kind)
		if err != nil {
			return err
		}
		if !there {
			return clearName(root, path.Join(parts[:i]...), parts[i])
		}
	}
	return nil
}

// isUsable is whether a path leads to something of a kind, and not by a link into what the runtime mounts itself.
func isUsable(root *os.File, name string, kind uint32) (bool, error) {
	found, err := confine.OpenAt(root, name, unix.O_PATH, 0, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || hosterr.Is(err, hosterr.PathEscape) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer found.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(found.Fd()), &stat); err != nil {
		return false, err
	}
	if (stat.Mode&unix.S_IFMT == unix.S_IFDIR) != (kind == unix.S_IFDIR) {
		return false, nil
	}
	where, err := os.Readlink(confine.ProcPath(found))
	if err != nil {
		return false, err
	}
	where = strings.TrimPrefix(where, root.Name()+"/")
	first, _, _ := strings.Cut(where, "/")
	isRuntimes := first == "proc" || first == "sys" || first == "dev"
	return where == name || !isRuntimes, nil
}

// clearName makes room for a name in a directory that is there.
func clearName(root *os.File, dir, name string) error {
	if dir == "" {
		dir = "."
	}
	parent, err := confine.OpenAt(root, dir, unix.O_PATH|unix.O_DIRECTORY, 0, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return err
	}
	defer parent.Close()
	var stat unix.Stat_t
	err = unix.Fstatat(int(parent.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = unix.Unlinkat(int(parent.Fd()), name, 0)
	} else if err == nil {
		err = moveAside(parent, name)
	}
	// A part of the image that is mounted read-only: the runtime has its own way there.
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

func moveAside(dir *os.File, name string) error {
	var err error
	for i := range asideMax {
		err = unix.Renameat2(int(dir.Fd()), name, int(dir.Fd()), fmt.Sprintf("%s.aside%d", name, i), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return err
}
