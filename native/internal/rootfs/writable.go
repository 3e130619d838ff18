package rootfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/loopfs"
	"golang.org/x/sys/unix"
)

// Writable is one writable layer that is kept by key.
type Writable struct {
	Key       string `json:"key"`
	SizeBytes int64  `json:"sizeBytes"`
	UsedBytes int64  `json:"usedBytes"`
	Mounted   bool   `json:"mounted"`
}

func (s *Store) writableImage(kind, name string) string {
	return s.inst.Host("writable", kind, name+".img")
}

func (s *Store) writableMount(kind, name string) string { return s.inst.Host("mnt", kind, name) }

func (s *Store) mountWritable(ctx context.Context, r Request) (string, error) {
	kind, name := "ephemeral", r.ID
	if r.KeepKey != "" {
		kind, name = "kept", r.KeepKey
	}
	image, target := s.writableImage(kind, name), s.writableMount(kind, name)
	if r.WritableFrom != "" {
		if err := s.takeSpare(r, image, target); err != nil {
			return "", err
		}
	}
	if err := s.ensureImage(image, r); err != nil {
		return "", err
	}
	if err := loopfs.EnsureMounted(ctx, image, target, r.WritableBytes, s.inst.Host("writable", "templates")); err != nil {
		return "", err
	}
	for _, dir := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(target, dir), 0o755); err != nil {
			return "", err
		}
	}
	return target, nil
}

// takeSpare makes a spare the writable layer, if there is none yet. Cut off in between, the image has its new name and the device that it is
// mounted from: whoever mounts it again finds that.
func (s *Store) takeSpare(r Request, image, target string) error {
	// One that starts from a saved layer is as large as that was, and not empty.
	if r.FromImage != "" {
		return nil
	}
	if _, err := os.Stat(image); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	spare, mount := s.writableImage("ephemeral", r.WritableFrom), s.writableMount("ephemeral", r.WritableFrom)
	info, err := os.Stat(spare)
	if errors.Is(err, os.ErrNotExist) || (err == nil && info.Size() != loopfs.RoundUp(r.WritableBytes)) {
		return nil
	}
	if err != nil {
		return err
	}
	mounted, err := loopfs.Mounted(mount)
	if err != nil {
		return err
	}
	if err := os.Rename(spare, image); err != nil || !mounted {
		return err
	}
	return loopfs.MountAlso(mount, target)
}

// releaseSpare forgets a spare that was taken: its layer stays mounted in its own place. One that was not is still its maker's.
func (s *Store) releaseSpare(r Request) error {
	if r.WritableFrom == "" {
		return nil
	}
	if _, err := os.Stat(s.writableImage("ephemeral", r.WritableFrom)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.Release(r.WritableFrom, unix.MNT_DETACH)
}

// ensureImage starts a writable layer that does not exist yet from a saved one, if the request names one.
func (s *Store) ensureImage(image string, r Request) error {
	if _, err := os.Stat(image); !errors.Is(err, os.ErrNotExist) || r.FromImage == "" {
		return nil
	}
	saved, err := confine.Beneath(s.inst.NodeDir(), r.FromImage)
	if err != nil {
		return hosterr.New(hosterr.NotFound, "fromImage: %v", err)
	}
	defer saved.Close()
	if err := loopfs.CopySparse(confine.ProcPath(saved), image+".tmp"); err != nil {
		return errors.Join(err, os.Remove(image+".tmp"))
	}
	return os.Rename(image+".tmp", image)
}

// Save copies the writable layer of a root file system to a file of the data directory that must not exist. The caller has stopped or
// paused what writes to it; what is in memory is written out first.
func (s *Store) Save(id, imagePath string) (int64, error) {
	name, err := confine.Relative("imagePath", imagePath)
	if err != nil {
		return 0, err
	}
	found, err := s.read(id)
	if errors.Is(err, os.ErrNotExist) {
		return 0, hosterr.New(hosterr.NotFound, "root file system %s does not exist", id)
	}
	if err != nil {
		return 0, err
	}
	kind, key := "ephemeral", id
	if found.Request.KeepKey != "" {
		kind, key = "kept", found.Request.KeepKey
	}
	parent, err := confine.Beneath(s.inst.NodeDir(), filepath.Dir(name))
	if err != nil {
		return 0, hosterr.New(hosterr.NotFound, "imagePath: %v", err)
	}
	defer parent.Close()
	target := filepath.Join(confine.ProcPath(parent), filepath.Base(name))
	if _, err := os.Lstat(target); err == nil {
		return 0, hosterr.New(hosterr.AlreadyExists, "imagePath: %s exists", imagePath)
	}
	if err := freeze(s.writableMount(kind, key), func() error {
		return loopfs.CopySparse(s.writableImage(kind, key), target+".tmp")
	}); err != nil {
		return 0, errors.Join(err, os.Remove(target+".tmp"))
	}
	if err := os.Rename(target+".tmp", target); err != nil {
		return 0, err
	}
	var stat unix.Stat_t
	if err := unix.Stat(target, &stat); err != nil {
		return 0, err
	}
	return stat.Blocks * 512, nil
}

// FIFREEZE and FITHAW, _IOWR('X', 119, int) and 120: the file system is written out and holds still.
const (
	ioctlFreeze = 0xc0045877
	ioctlThaw   = 0xc0045878
)

// freeze runs a function while the file system, if mounted, is consistent on its image.
func freeze(target string, run func() error) error {
	mounted, err := loopfs.Mounted(target)
	if err != nil || !mounted {
		return errors.Join(err, run())
	}
	dir, err := os.Open(target)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.IoctlSetInt(int(dir.Fd()), ioctlFreeze, 0); err != nil {
		return err
	}
	err = run()
	return errors.Join(err, unix.IoctlSetInt(int(dir.Fd()), ioctlThaw, 0))
}

// ListWritable is every kept writable layer.
func (s *Store) ListWritable() ([]Writable, error) {
	entries, err := os.ReadDir(s.inst.Host("writable/kept"))
	if err != nil {
		return nil, err
	}
	list := []Writable{}
	for _, entry := range entries {
		key, found := strings.CutSuffix(entry.Name(), ".img")
		if !found || instance.CheckID("key", key) != nil {
			continue
		}
		var stat unix.Stat_t
		err := unix.Stat(s.writableImage("kept", key), &stat)
		if errors.Is(err, os.ErrNotExist) {
			// Deleted meanwhile.
			continue
		}
		if err != nil {
			return nil, err
		}
		mounted, err := loopfs.Mounted(s.writableMount("kept", key))
		if err != nil {
			return nil, err
		}
		list = append(list, Writable{Key: key, SizeBytes: stat.Size, UsedBytes: stat.Blocks * 512, Mounted: mounted})
	}
	return list, nil
}

// DeleteWritable deletes a kept writable layer. `busy` while a root file system uses it.
func (s *Store) DeleteWritable(key string) error {
	if err := instance.CheckID("key", key); err != nil {
		return err
	}
	used, err := s.keyInUse(key, "")
	if err != nil {
		return err
	}
	if used {
		return hosterr.New(hosterr.Busy, "writable layer %s is in use by a root file system", key)
	}
	return s.deleteWritable("kept", key, 0)
}

func (s *Store) deleteWritable(kind, name string, flags int) error {
	if err := loopfs.Unmount(s.writableMount(kind, name), flags); err != nil {
		return err
	}
	for _, image := range []string{s.writableImage(kind, name), s.writableImage(kind, name) + ".tmp"} {
		if err := os.Remove(image); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
