// Package durable keeps the helper's records: small files that are there whole or not at all, also after a crash or a loss of power.
package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"golang.org/x/sys/unix"
)

// workPrefix begins the name of a record that is being written; no record's own name does.
const workPrefix = ".record-"

// step is called before and after a record gets its name, and when its file and its directory are on the disk; tests look and stop there.
var step = func(string) {}

// Write replaces a record. Its name appears once its content is on the disk, and when Write returns, the record outlasts a loss of power.
func Write(name confine.Entry, content any) error {
	w, err := create(name, content)
	if err != nil {
		return err
	}
	if err := w.syncFile(); err != nil {
		return errors.Join(err, w.abandon())
	}
	if err := w.rename(); err != nil {
		return err
	}
	return errors.Join(w.syncDir(), w.close())
}

// Begin replaces a record at once, so that a helper that is killed from now on leaves it to the next one, and writes it to the disk meanwhile. The
// function that it returns waits for that: no answer that rests on the record is given before. Where the power fails in between, the name may
// be there without its content; such a record is set aside, and no answer had rested on it.
func Begin(name confine.Entry, content any) (settled func() error, err error) {
	w, err := create(name, content)
	if err != nil {
		return nil, err
	}
	if err := w.rename(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(w.syncFile(), w.syncDir(), w.close()) }()
	return func() error { return <-done }, nil
}

// writing is a record on its way: a file with a name of its own in the directory where the record will be.
type writing struct {
	record    confine.Entry
	dir, file *os.File
	work      string
}

func create(name confine.Entry, content any) (*writing, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	dir, err := name.Dir().OpenDir()
	if err != nil {
		return nil, err
	}
	w := &writing{record: name, dir: dir, work: fmt.Sprintf("%s%016x", workPrefix, rand.Uint64())}
	fd, err := unix.Openat(int(dir.Fd()), w.work, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "openat", Path: name.Path(), Err: err}, dir.Close())
	}
	w.file = os.NewFile(uintptr(fd), name.Path())
	if _, err := w.file.Write(text); err != nil {
		return nil, errors.Join(err, w.abandon())
	}
	return w, nil
}

func (w *writing) rename() error {
	step("before " + w.record.Path())
	if err := unix.Renameat(int(w.dir.Fd()), w.work, int(w.dir.Fd()), w.record.Base()); err != nil {
		return errors.Join(&os.PathError{Op: "renameat", Path: w.record.Path(), Err: err}, w.abandon())
	}
	step("after " + w.record.Path())
	return nil
}

func (w *writing) syncFile() error {
	err := w.file.Sync()
	step("content of " + w.record.Path())
	return err
}

func (w *writing) syncDir() error {
	err := w.dir.Sync()
	step("name of " + w.record.Path())
	return err
}

func (w *writing) abandon() error { return errors.Join(unlink(w.dir, w.work), w.close()) }

func (w *writing) close() error { return errors.Join(w.file.Close(), w.dir.Close()) }

func unlink(dir *os.File, name string) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlinkat", Path: dir.Name() + "/" + name, Err: err}
	}
	return nil
}

// Tidy removes what writers that were killed left in a directory of records. It is called before the first verb, so that no other writer is at work there.
func Tidy(name confine.Entry) error {
	dir, err := name.OpenDir()
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
