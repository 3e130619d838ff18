package rootfs

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

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

func (s *Store) writableImage(kind, name string) confine.Entry {
	return s.tree.At("writable", kind, name+".img")
}

func (s *Store) writableMount(kind, name string) confine.Entry { return s.tree.At("mnt", kind, name) }

func (s *Store) mountWritable(ctx context.Context, r Request) (confine.Entry, error) {
	kind, name := "ephemeral", r.ID
	if r.KeepKey != "" {
		kind, name = "kept", r.KeepKey
	}
	image, target := s.writableImage(kind, name), s.writableMount(kind, name)
	if r.WritableFrom != "" {
		if err := s.takeSpare(r, image, target); err != nil {
			return target, err
		}
	}
	if err := loopfs.EnsureMounted(ctx, image, target, r.WritableBytes, s.tree.At("writable", "templates")); err != nil {
		return target, err
	}
	return target, errors.Join(target.In("upper").EnsureDir(0o755), target.In("work").EnsureDir(0o755))
}

// takeSpare makes a spare the writable layer, if there is none yet. Cut off in between, the image has its new name and the device that it is
// mounted from: attached() finds that device when the image is mounted again.
func (s *Store) takeSpare(r Request, image, target confine.Entry) error {
	if exists, err := image.Exists(); err != nil || exists {
		return err
	}
	spare, mount := s.writableImage("ephemeral", r.WritableFrom), s.writableMount("ephemeral", r.WritableFrom)
	info, err := spare.Lstat()
	if errors.Is(err, os.ErrNotExist) || (err == nil && info.Size != loopfs.RoundUp(r.WritableBytes)) {
		return nil
	}
	if err != nil {
		return err
	}
	mounted, err := loopfs.Mounted(mount)
	if err != nil {
		return err
	}
	if err := spare.Rename(image); err != nil || !mounted {
		return err
	}
	return loopfs.MountAlso(mount, target)
}

// releaseSpare forgets a spare that was taken: its layer stays mounted in its own place. One that was not is still its maker's.
func (s *Store) releaseSpare(r Request) error {
	if r.WritableFrom == "" {
		return nil
	}
	if exists, err := s.writableImage("ephemeral", r.WritableFrom).Exists(); err != nil || exists {
		return err
	}
	return s.Release(r.WritableFrom, unix.MNT_DETACH)
}

// ListWritable is every kept writable layer.
func (s *Store) ListWritable() ([]Writable, error) {
	entries, err := s.tree.At("writable/kept").ReadDir()
	if err != nil {
		return nil, err
	}
	list := []Writable{}
	for _, entry := range entries {
		key, found := strings.CutSuffix(entry.Name(), ".img")
		if !found || instance.CheckID("key", key) != nil {
			continue
		}
		stat, err := s.writableImage("kept", key).Lstat()
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

// Snapshot opens a copy of a kept writable layer's image as it is at one moment, and tells how long its writers waited.
func (s *Store) Snapshot(ctx context.Context, key string, bounds loopfs.SnapshotBounds) (*os.File, time.Duration, error) {
	return loopfs.Snapshot(ctx, s.writableImage("kept", key), s.writableMount("kept", key), bounds)
}

// Clone makes a kept writable layer of another one, as that is at one moment. One that is there already is left as it is.
func (s *Store) Clone(ctx context.Context, from, to string, bounds loopfs.SnapshotBounds) (loopfs.Copied, error) {
	return loopfs.Clone(ctx, s.writableImage("kept", from), s.writableMount("kept", from), s.writableImage("kept", to), bounds)
}

// Image is where the image of a kept writable layer is, and where it is mounted.
func (s *Store) Image(key string) (image, target confine.Entry) {
	return s.writableImage("kept", key), s.writableMount("kept", key)
}

// DeleteWritable deletes a kept writable layer. `busy` while a root file system uses it.
func (s *Store) DeleteWritable(key string) error {
	if err := instance.CheckID("key", key); err != nil {
		return err
	}
	holder, err := s.holder(key)
	if err != nil {
		return err
	}
	if holder != "" {
		return hosterr.New(hosterr.Busy, "writable layer %s is held by root file system %s", key, holder)
	}
	return s.deleteWritable("kept", key, 0)
}

func (s *Store) deleteWritable(kind, name string, flags int) error {
	if err := loopfs.Unmount(s.writableMount(kind, name), flags); err != nil {
		return err
	}
	image := s.writableImage(kind, name)
	return errors.Join(image.Remove(), image.WithSuffix(".tmp").Remove())
}
