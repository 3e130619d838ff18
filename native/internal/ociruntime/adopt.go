package ociruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// SavedFiles are the names of the files that a saved state has, its record first.
func SavedFiles() []string { return append([]string{manifestName}, stateFiles...) }

// manifestBytesMax is far more than the record of a state of many terabytes takes.
const manifestBytesMax = 16 << 20

// OpenSaved opens the files of a state that may be used more than once, in the order of SavedFiles.
func (e *Engine) OpenSaved(id string) ([]*os.File, error) {
	m, err := e.readSaved(id)
	if err != nil {
		return nil, err
	}
	if !m.Reusable {
		return nil, hosterr.New(hosterr.InvalidArgument, "saved state %s is of one sandbox alone", id)
	}
	var files []*os.File
	for _, name := range SavedFiles() {
		f, err := e.savedDir(id, name).Open(unix.O_RDONLY, 0)
		if err != nil {
			return nil, errors.Join(err, closeAll(files))
		}
		files = append(files, f)
	}
	return files, nil
}

// AdoptSaved makes a saved state of files that were one on this machine or another, in the order of SavedFiles, which are on the disk and have no other use. One that is there already
// is left as it is. Whether this machine can restore it is looked at when it is to be restored.
func (e *Engine) AdoptSaved(id string, files []confine.Entry) error {
	if _, err := e.readSaved(id); !hosterr.Is(err, hosterr.NotFound) {
		return err
	}
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	text, err := files[0].ReadFile(manifestBytesMax)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return hosterr.New(hosterr.DigestMismatch, "the record of saved state %s: %v", id, err)
	}
	if err := m.Check(); err != nil {
		return hosterr.New(hosterr.DigestMismatch, "the record of saved state %s: %v", id, err)
	}
	work := e.savedDir(id + partial)
	if err := e.savedDir().EnsureDir(0o700); err != nil {
		return err
	}
	if err := work.RemoveAll(); err != nil {
		return err
	}
	if err := work.Mkdir(0o700); err != nil {
		return err
	}
	for i, file := range m.Files {
		if err := adoptFile(files[i+1], work.In(file.Name), file.SizeBytes); err != nil {
			return errors.Join(fmt.Errorf("saved state %s: %w", id, err), work.RemoveAll())
		}
	}
	m.ID, m.Reusable = id, true
	return e.publish(work, m)
}

func adoptFile(file, to confine.Entry, sizeBytes int64) error {
	stat, err := file.Lstat()
	if err != nil {
		return err
	}
	if stat.Size != sizeBytes {
		return hosterr.New(hosterr.DigestMismatch, "%s has %d bytes, its record says %d", to.Base(), stat.Size, sizeBytes)
	}
	return file.Link(to)
}
