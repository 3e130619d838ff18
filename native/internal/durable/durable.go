// Package durable keeps the helper's records: small files that are there whole or not at all, also after a crash or a loss of power.
package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// workPrefix begins the name of a record that is being written; no record's own name does.
const workPrefix = ".record-"

// step is called before and after a record gets its name; tests stop there.
var step = func(string) {}

// Write replaces a record. When it returns, the record outlasts a loss of power.
func Write(name string, content any) error { return replace(name, content, true) }

// Keep is Write for what a killed helper must find and a machine that lost its power has lost anyway: nobody waits for the disk.
func Keep(name string, content any) error { return replace(name, content, false) }

// Settle makes a record that was kept outlast a loss of power.
func Settle(name string) error {
	dir, err := openDir(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(name), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "openat", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	return errors.Join(f.Sync(), f.Close(), dir.Sync())
}

func replace(name string, content any, settle bool) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	dir, err := openDir(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	work := fmt.Sprintf("%s%016x", workPrefix, rand.Uint64())
	if err := writeFile(dir, work, text, settle); err != nil {
		return errors.Join(err, unlink(dir, work))
	}
	step("before " + name)
	if err := unix.Renameat(int(dir.Fd()), work, int(dir.Fd()), filepath.Base(name)); err != nil {
		return errors.Join(&os.PathError{Op: "renameat", Path: name, Err: err}, unlink(dir, work))
	}
	step("after " + name)
	if !settle {
		return nil
	}
	return dir.Sync()
}

func writeFile(dir *os.File, name string, text []byte, settle bool) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "openat", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name))
	_, err = f.Write(text)
	if err == nil && settle {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func unlink(dir *os.File, name string) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlinkat", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return nil
}

func openDir(name string) (*os.File, error) {
	return os.OpenFile(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// Tidy removes what writers that were killed left in a directory of records. Nobody else writes there meanwhile.
func Tidy(name string) error {
	dir, err := openDir(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, entry := range names {
		if strings.HasPrefix(entry, workPrefix) {
			err = errors.Join(err, unlink(dir, entry))
		}
	}
	return err
}
