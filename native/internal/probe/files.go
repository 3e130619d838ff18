package probe

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// readPath opens for reading, a directory or a device included; a file must give a byte unless it is empty.
func readPath(a Attempt) Outcome {
	file, err := os.OpenFile(a.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return refused(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
		return through("opened %s", a.Path)
	}
	if _, err := file.Read(make([]byte, 1)); err != nil && err != io.EOF {
		return refused(err)
	}
	return through("read %s", a.Path)
}

// writePath opens for writing and writes nothing: the opening is what the kernel refuses.
func writePath(a Attempt) Outcome {
	file, err := os.OpenFile(a.Path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return refused(err)
	}
	file.Close()
	return through("opened %s for writing", a.Path)
}

// dialSocket connects to a Unix socket; a path that begins with @ is an abstract name.
func dialSocket(a Attempt) Outcome {
	conn, err := net.DialTimeout("unix", a.Path, networkWait)
	if err != nil {
		return refused(err)
	}
	conn.Close()
	return through("connected to %s", a.Path)
}

const (
	// searchDepth reaches the temporary directory of a host whose root is mounted two levels down.
	searchDepth = 4
	// searchMax bounds the names looked at.
	searchMax = 40_000
)

// findName looks for a file by its name, nearest directories first.
func findName(a Attempt) Outcome {
	if found, looked := search(a.Name); found != "" {
		return through("found %s", found)
	} else {
		return refusedBecause("not among %d names", looked)
	}
}

// plant writes a file beside the one called Name, and removes it again.
func plant(a Attempt) Outcome {
	found, looked := search(a.Name)
	if found == "" {
		return refusedBecause("not among %d names", looked)
	}
	planted := found + ".planted"
	file, err := os.OpenFile(planted, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return refused(err)
	}
	file.Close()
	os.Remove(planted)
	return through("wrote beside %s", found)
}

func search(name string) (found string, looked int) {
	level := []string{"/tmp", "/"}
	for depth := 0; depth < searchDepth; depth++ {
		var next []string
		for _, dir := range level {
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue
			}
			for _, entry := range entries {
				if looked++; looked > searchMax {
					return "", looked
				}
				path := filepath.Join(dir, entry.Name())
				if entry.Name() == name {
					return path, looked
				}
				if entry.IsDir() && path != "/proc" && path != "/sys" {
					next = append(next, path)
				}
			}
		}
		level = next
	}
	return "", looked
}

// makeDevice makes a node for the block device Number; who can make one needs only a file system that lets it be opened.
func makeDevice(a Attempt) Outcome {
	return scratch(func(dir string) Outcome {
		node := filepath.Join(dir, "device")
		if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(a.Number)); err != nil {
			return refused(fmt.Errorf("mknod: %w", err))
		}
		return through("made block device %d:%d", unix.Major(uint64(a.Number)), unix.Minor(uint64(a.Number)))
	})
}

// walkDescriptors follows every directory that this process was given open up to its root; one that ends elsewhere than / leads out. With Path, that
// directory is opened and counted too, which shows that such a one is noticed.
func walkDescriptors(a Attempt) Outcome {
	if a.Path != "" {
		dir, err := os.Open(a.Path)
		if err != nil {
			return refused(err)
		}
		defer dir.Close()
		if isDirectory(int(dir.Fd())) {
			return through("descriptor %d is the directory %s", dir.Fd(), a.Path)
		}
		return refusedBecause("%s is no directory", a.Path)
	}
	var root unix.Stat_t
	if err := unix.Stat("/", &root); err != nil {
		return refused(err)
	}
	looked := 0
	for fd := 0; fd < 256; fd++ {
		if !isDirectory(fd) {
			continue
		}
		looked++
		top, err := rootAbove(fd)
		if err == nil && (top.Dev != root.Dev || top.Ino != root.Ino) {
			return through("descriptor %d leads to another root", fd)
		}
	}
	return refusedBecause("none of %d inherited directories leads out", looked)
}

func isDirectory(fd int) bool {
	var stat unix.Stat_t
	return unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// rootAbove climbs until .. leads nowhere else.
func rootAbove(fd int) (unix.Stat_t, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(fd, strings.TrimSuffix(strings.Repeat("../", 64), "/"), &stat, 0)
	return stat, err
}

// mountFilesystem mounts a file system of the type Name over a directory of its own and unmounts it.
func mountFilesystem(a Attempt) Outcome {
	return scratch(func(dir string) Outcome {
		if err := unix.Mount(a.Name, dir, a.Name, 0, a.Value); err != nil {
			return refused(err)
		}
		unix.Unmount(dir, unix.MNT_DETACH)
		return through("mounted %s", a.Name)
	})
}
