// Package rootfs stacks layers and a size-limited writable layer into the root file system of a container.
package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/layer"
	"agent-sandbox.dev/native/internal/loopfs"
	"golang.org/x/sys/unix"
)

// Overlayfs itself stops at 500 lower directories; registries at 127 layers.
const layersMax = 128

// Request says what a root file system is made of.
type Request struct {
	ID            string   `json:"id"`
	Layers        []string `json:"layers,omitempty"`
	HostUsr       bool     `json:"hostUsr,omitempty"`
	WritableBytes int64    `json:"writableBytes"`
	KeepKey       string   `json:"keepKey,omitempty"`
	// Spare: a writable layer and nothing under it, made ahead for whoever names it in WritableFrom.
	Spare bool `json:"spare,omitempty"`
	// WritableFrom is a spare to take the writable layer from where there is none yet; of another size it is not taken. Once taken it is gone.
	WritableFrom string `json:"writableFrom,omitempty"`
}

// Rootfs is a mounted root file system.
type Rootfs struct {
	ID           string `json:"id"`
	Path         string `json:"path"`
	KeepKey      string `json:"keepKey,omitempty"`
	SourceDigest string `json:"sourceDigest"`
	// Writable is how full the writable layer is; only ListUsed looks.
	Writable *Fill `json:"writable,omitempty"`
}

// Fill is how much of a file system is in use.
type Fill struct {
	SizeBytes int64 `json:"sizeBytes"`
	UsedBytes int64 `json:"usedBytes"`
}

// record is what is on disk about a root file system; it is written before anything is mounted, so that a crash leaves nothing unnamed.
type record struct {
	Request      Request `json:"request"`
	SourceDigest string  `json:"sourceDigest"`
}

// Check refuses what is not a record of a root file system.
func (r *record) Check() error { return instance.CheckID("request.id", r.Request.ID) }

// Store makes and finds root file systems. Its whole state is in the data directory and the mount table.
type Store struct {
	inst   instance.Instance
	layers *layer.Store
	shelf  *durable.Shelf
	host   *hostTree
	// IsUsed tells whether a container runs on a root file system: unmounting that here would not end the mount that the container has.
	IsUsed func(id string) (bool, error)
}

// NewStore opens the root file systems of an instance.
func NewStore(inst instance.Instance, layers *layer.Store, shelf *durable.Shelf) (*Store, error) {
	for _, dir := range []string{"rootfs", "writable/kept", "writable/ephemeral", "mnt/rootfs", "mnt/kept", "mnt/ephemeral"} {
		if err := confine.RootDir(inst.Host(dir), 0o700, 0); err != nil {
			return nil, err
		}
	}
	unused := func(string) (bool, error) { return false, nil }
	s := &Store{inst: inst, layers: layers, shelf: shelf, host: &hostTree{inst: inst, usr: "/usr", etc: "/etc"}, IsUsed: unused}
	return s, durable.Tidy(inst.Host("rootfs"))
}

// HostDigest is the identity of the built-in image on this machine.
func (s *Store) HostDigest() (string, error) { return s.host.digest() }

// Path is where a root file system is mounted.
func (s *Store) Path(id string) string { return s.inst.Host("mnt/rootfs", id) }

func (s *Store) recordPath(id string) string { return s.inst.Host("rootfs", id+".json") }

// Prepare mounts a root file system, or finds it mounted.
func (s *Store) Prepare(ctx context.Context, r Request) (Rootfs, error) {
	if err := s.check(r); err != nil {
		return Rootfs{}, err
	}
	before, err := s.read(r.ID)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Rootfs{}, err
	}
	if err == nil && !sameSource(before.Request, r) {
		return Rootfs{}, hosterr.New(hosterr.AlreadyExists, "root file system %s exists and is made of something else", r.ID)
	}
	lowers, digest, err := s.lowers(r)
	if err != nil {
		return Rootfs{}, err
	}
	made := Rootfs{ID: r.ID, Path: s.Path(r.ID), KeepKey: r.KeepKey, SourceDigest: digest}
	mounted, err := loopfs.Mounted(made.Path)
	if err != nil {
		return made, err
	}
	if mounted && before.SourceDigest == digest {
		return made, s.releaseSpare(r)
	}
	if err := s.assertSole(r); err != nil {
		return Rootfs{}, err
	}
	if err := durable.Keep(s.recordPath(r.ID), &record{Request: r, SourceDigest: digest}); err != nil {
		return Rootfs{}, err
	}
	// The record outlasts a loss of power before anybody is told of it; the disk takes as long for that as the mount does.
	settled := make(chan error, 1)
	go func() { settled <- durable.Settle(s.recordPath(r.ID)) }()
	if err := errors.Join(s.mount(ctx, r, lowers), <-settled); err != nil {
		return made, err
	}
	return made, s.releaseSpare(r)
}

func (s *Store) check(r Request) error {
	if err := instance.CheckID("id", r.ID); err != nil {
		return err
	}
	if r.KeepKey != "" {
		if err := instance.CheckID("keepKey", r.KeepKey); err != nil {
			return err
		}
	}
	sources := 0
	for _, given := range []bool{len(r.Layers) > 0, r.HostUsr, r.Spare} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		return hosterr.New(hosterr.InvalidArgument, "layers: give layers, hostUsr or spare, one of them")
	}
	if err := s.checkSpare(r); err != nil {
		return err
	}
	if len(r.Layers) > layersMax {
		return hosterr.New(hosterr.InvalidArgument, "layers: %d are more than %d", len(r.Layers), layersMax)
	}
	if r.WritableBytes < loopfs.SizeMin {
		return hosterr.New(hosterr.InvalidArgument, "writableBytes: %d is less than %d", r.WritableBytes, loopfs.SizeMin)
	}
	for i, id := range r.Layers {
		if err := layer.CheckDigest(fmt.Sprintf("layers[%d]", i), id); err != nil {
			return err
		}
		if !s.layers.Has(id) {
			return hosterr.New(hosterr.NotFound, "layer %s is not unpacked", id)
		}
	}
	return nil
}

// checkSpare also refuses a layer that is somebody's: what is taken is taken from under whoever has it.
func (s *Store) checkSpare(r Request) error {
	if r.Spare && (r.KeepKey != "" || r.WritableFrom != "") {
		return hosterr.New(hosterr.InvalidArgument, "spare: one that is made ahead is empty and nobody's")
	}
	if r.WritableFrom == "" {
		return nil
	}
	if r.WritableFrom == r.ID {
		return hosterr.New(hosterr.InvalidArgument, "writableFrom: %q is the root file system itself", r.ID)
	}
	if err := instance.CheckID("writableFrom", r.WritableFrom); err != nil {
		return err
	}
	found, err := s.read(r.WritableFrom)
	if err == nil && !found.Request.Spare {
		return hosterr.New(hosterr.InvalidArgument, "writableFrom: %s is a root file system and no spare", r.WritableFrom)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func sameSource(a, b Request) bool {
	return a.HostUsr == b.HostUsr && a.Spare == b.Spare && a.KeepKey == b.KeepKey && strings.Join(a.Layers, ",") == strings.Join(b.Layers, ",")
}

// lowers is the list of read-only directories, highest first, and the identity of their content.
func (s *Store) lowers(r Request) ([]string, string, error) {
	if r.HostUsr {
		dir, digest, err := s.host.ensure()
		return []string{dir}, digest, err
	}
	dirs := make([]string, 0, len(r.Layers))
	for i := len(r.Layers) - 1; i >= 0; i-- {
		dirs = append(dirs, s.layers.Path(r.Layers[i]))
	}
	sum := sha256.Sum256([]byte(strings.Join(r.Layers, "\n")))
	return dirs, "sha256:" + hex.EncodeToString(sum[:]), nil
}

func (s *Store) mount(ctx context.Context, r Request, lowers []string) error {
	writable, err := s.mountWritable(ctx, r)
	if err != nil || r.Spare {
		return err
	}
	target := s.Path(r.ID)
	if err := s.unmountOwn(r.ID, 0); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	if r.HostUsr {
		return s.mountHost(target, writable, lowers[0])
	}
	return mountOverlay(overlay{lowers: lowers, upper: filepath.Join(writable, "upper"), work: filepath.Join(writable, "work"), target: target})
}

// mountHost lays this machine's /usr under the synthetic root: read-only, with an empty, writable /usr/local in place of the machine's own.
func (s *Store) mountHost(target, writable, synthetic string) error {
	if err := mountOverlay(overlay{
		lowers: []string{filepath.Join(synthetic, "root")}, upper: filepath.Join(writable, "upper"), work: filepath.Join(writable, "work"), target: target,
	}); err != nil {
		return err
	}
	usr := filepath.Join(target, "usr")
	if err := ensureDirectory(usr); err != nil {
		return err
	}
	if err := mountOverlay(overlay{lowers: []string{filepath.Join(synthetic, "usr"), s.host.usr}, target: usr, readOnly: true}); err != nil {
		return err
	}
	local := filepath.Join(writable, "local")
	if err := os.MkdirAll(local, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "lib", "sbin", "share", "include", "etc", "src"} {
		// Whatever a sandbox has put in its place is the sandbox's own affair.
		if err := os.Mkdir(filepath.Join(local, dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return bind(local, filepath.Join(usr, "local"))
}

// ensureDirectory puts a directory in place of a link that a layer may have there: what is mounted on it must not follow that to somewhere of this machine.
func ensureDirectory(name string) error {
	info, err := os.Lstat(name)
	if err != nil || info.IsDir() {
		return err
	}
	return errors.Join(os.Remove(name), os.Mkdir(name, 0o755))
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if err := unix.Mount("", target, "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NODEV, "")
}

// unmountOwn unmounts a root file system that no container runs on.
func (s *Store) unmountOwn(id string, flags int) error {
	mounted, err := loopfs.Mounted(s.Path(id))
	if err != nil {
		return err
	}
	if mounted {
		used, err := s.IsUsed(id)
		if err != nil {
			return err
		}
		if used {
			return hosterr.New(hosterr.Busy, "a container runs on root file system %s", id)
		}
	}
	return s.unmountTree(s.Path(id), flags)
}

// unmountTree unmounts a target and what is mounted below it.
func (s *Store) unmountTree(target string, flags int) error {
	below, err := loopfs.MountsBelow(target)
	if err != nil {
		return err
	}
	for _, point := range below {
		if err := unix.Unmount(point, flags|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return hosterr.New(hosterr.Busy, "%s is in use: %v", point, err)
		}
	}
	return loopfs.Unmount(target, flags)
}

func (s *Store) read(id string) (record, error) {
	var found record
	err := s.shelf.Read(s.recordPath(id), &found)
	return found, err
}

// List is every root file system that was prepared and not released, mounted or not. One whose record was lost is known by its mount or its layer.
func (s *Store) List() ([]Rootfs, error) {
	ids, err := s.inst.HostIDs("rootfs", ".json")
	if err != nil {
		return nil, err
	}
	list := []Rootfs{}
	known := map[string]bool{}
	for _, id := range ids {
		r, err := s.read(id)
		if errors.Is(err, os.ErrNotExist) {
			// Released meanwhile, or set aside.
			continue
		}
		if err != nil {
			return nil, err
		}
		known[id] = true
		list = append(list, Rootfs{ID: id, Path: s.Path(id), KeepKey: r.Request.KeepKey, SourceDigest: r.SourceDigest})
	}
	for _, trace := range []struct{ dir, suffix string }{{"mnt/rootfs", ""}, {"writable/ephemeral", ".img"}} {
		ids, err := s.inst.HostIDs(trace.dir, trace.suffix)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if _, err := os.Stat(s.recordPath(id)); known[id] || err == nil {
				continue
			}
			known[id] = true
			list = append(list, Rootfs{ID: id, Path: s.Path(id)})
		}
	}
	return list, nil
}

// ListUsed is List with how full each writable layer is; of one that is not mounted nothing is known.
func (s *Store) ListUsed() ([]Rootfs, error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	var parent unix.Stat_t
	if err := unix.Stat(s.inst.Host("mnt/rootfs"), &parent); err != nil {
		return nil, err
	}
	for i := range list {
		var mounted unix.Stat_t
		// Released meanwhile, or not mounted: its device is that of the directory above.
		if err := unix.Stat(list[i].Path, &mounted); err != nil || mounted.Dev == parent.Dev {
			continue
		}
		// An overlay answers for the file system of its upper directory.
		size, used, err := loopfs.Usage(list[i].Path)
		if err != nil {
			continue
		}
		list[i].Writable = &Fill{SizeBytes: size, UsedBytes: used}
	}
	return list, nil
}

// UsesLayer reports whether a root file system is stacked on a layer: by its record, or by the mount of one that has lost it.
func (s *Store) UsesLayer(id string) (bool, error) {
	if mounted, err := loopfs.NamedByMount(s.layers.Path(id)); err != nil || mounted {
		return mounted, err
	}
	all, err := s.List()
	if err != nil {
		return false, err
	}
	for _, r := range all {
		found, err := s.read(r.ID)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		for _, used := range found.Request.Layers {
			if used == id {
				return true, nil
			}
		}
	}
	return false, nil
}

// Release unmounts a root file system and deletes its writable layer unless that one has a key to be kept by.
func (s *Store) Release(id string, flags int) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	key, err := s.keyOf(id)
	if err != nil {
		return err
	}
	if err := s.unmountOwn(id, flags); err != nil {
		return err
	}
	if key != "" {
		if err := s.unmountKept(key, flags); err != nil {
			return err
		}
	} else if err := s.deleteWritable("ephemeral", id, flags); err != nil {
		return err
	}
	if err := os.Remove(s.recordPath(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
