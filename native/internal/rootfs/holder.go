package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/loopfs"
)

// assertSole refuses a kept writable layer that another root file system has: two overlays on one directory would mix what two sandboxes write.
func (s *Store) assertSole(r Request) error {
	if r.KeepKey == "" {
		return nil
	}
	holder, err := s.holder(r.KeepKey)
	if err != nil || holder == "" || holder == r.ID {
		return err
	}
	return hosterr.New(hosterr.Busy, "writable layer %s is held by root file system %s", r.KeepKey, holder)
}

// holder is the root file system that a kept writable layer is under. What the kernel has mounted tells, whatever records or callers say.
func (s *Store) holder(key string) (string, error) {
	if mounted, err := loopfs.Mounted(s.writableMount("kept", key)); err != nil || !mounted {
		return "", err
	}
	uppers, err := loopfs.Uppers()
	if err != nil {
		return "", err
	}
	for point, upper := range uppers {
		if upper == s.writableMount("kept", key).In("upper").Path() {
			return filepath.Base(point), nil
		}
	}
	return "", nil
}

// KeyOf is the key that a root file system's writable layer is kept by; where the record was lost, the mount tells.
func (s *Store) KeyOf(id string) (string, error) {
	if err := instance.CheckID("id", id); err != nil {
		return "", err
	}
	found, err := s.read(id)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return found.Request.KeepKey, err
	}
	uppers, err := loopfs.Uppers()
	if err != nil {
		return "", err
	}
	rest, isKept := strings.CutPrefix(uppers[s.At(id).Path()], s.tree.At("mnt/kept").Path()+"/")
	if !isKept {
		return "", nil
	}
	return filepath.Dir(rest), nil
}

// unmountKept unmounts a kept writable layer, unless the root file system that took it over has it.
func (s *Store) unmountKept(key string, flags int) error {
	held, err := s.holder(key)
	if err != nil || held != "" {
		return err
	}
	return loopfs.Unmount(s.writableMount("kept", key), flags)
}
