// Package rootfs stacks layers and a size-limited writable layer into the root file system of a container.
package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/layer"
	"agent-sandbox.dev/native/internal/loopfs"
	"agent-sandbox.dev/native/internal/mountfd"
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
	// Spare: a writable layer and nothing under it, made ahead for a later request that names it in WritableFrom.
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
	tree   *confine.Tree
	layers *layer.Store
	shelf  *durable.Shelf
	host   *hostTree
	// IsUsed tells whether a container runs on a root file system: unmounting that here would not end the mount that the container has.
	IsUsed func(id string) (bool, error)
}

// NewStore opens the root file systems that the helper's directory holds.
func NewStore(tree *confine.Tree, layers *layer.Store, shelf *durable.Shelf) (*Store, error) {
	for _, dir := range []string{"rootfs", "writable/kept", "writable/ephemeral", "mnt/rootfs", "mnt/kept", "mnt/ephemeral"} {
		if err := tree.At(dir).EnsureRootDir(0o700, 0); err != nil {
			return nil, err
		}
	}
	unused := func(string) (bool, error) { return false, nil }
	s := &Store{tree: tree, layers: layers, shelf: shelf, host: &hostTree{layers: tree.At("layers"), usr: "/usr", etc: "/etc"}, IsUsed: unused}
	return s, errors.Join(durable.Tidy(tree.At("rootfs")), loopfs.Recover(tree.At("writable/kept"), tree.At("mnt/kept")))
}

// HostDigest is the identity of the built-in image on this machine.
func (s *Store) HostDigest() (string, error) { return s.host.digest() }

// At is where a root file system is mounted.
func (s *Store) At(id string) confine.Entry { return s.tree.At("mnt/rootfs", id) }

func (s *Store) recordAt(id string) confine.Entry { return s.tree.At("rootfs", id+".json") }

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
	made := Rootfs{ID: r.ID, Path: s.At(r.ID).Path(), KeepKey: r.KeepKey, SourceDigest: digest}
	whole, err := s.isWhole(r)
	if err != nil {
		return made, err
	}
	if whole && before.SourceDigest == digest {
		return made, s.releaseSpare(r)
	}
	if err := s.assertSole(r); err != nil {
		return Rootfs{}, err
	}
	// The disk takes as long for the record as the mount does.
	settled, err := durable.Begin(s.recordAt(r.ID), &record{Request: r, SourceDigest: digest})
	if err != nil {
		return Rootfs{}, err
	}
	if err := errors.Join(s.mount(ctx, r, lowers), settled()); err != nil {
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

// checkSpare also refuses to take the writable layer of a root file system that is not a spare: a container may run on that one.
func (s *Store) checkSpare(r Request) error {
	if r.Spare && (r.KeepKey != "" || r.WritableFrom != "") {
		return hosterr.New(hosterr.InvalidArgument, "spare: one that is made ahead has no key and takes no other spare")
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

// lowers is the list of read-only directories, highest first, and the identity of their content. For the built-in image it is its synthetic tree.
func (s *Store) lowers(r Request) ([]confine.Entry, string, error) {
	if r.HostUsr {
		tree, digest, err := s.host.ensure()
		return []confine.Entry{tree}, digest, err
	}
	dirs := make([]confine.Entry, 0, len(r.Layers))
	for i := len(r.Layers) - 1; i >= 0; i-- {
		dirs = append(dirs, s.layers.At(r.Layers[i]))
	}
	sum := sha256.Sum256([]byte(strings.Join(r.Layers, "\n")))
	return dirs, "sha256:" + hex.EncodeToString(sum[:]), nil
}

// isWhole reports whether all mounts of a root file system are there. The built-in image has three, and /usr/local is the last: a helper that was killed
// between them leaves one that begins like it and has no programs.
func (s *Store) isWhole(r Request) (bool, error) {
	mounted, err := loopfs.Mounted(s.At(r.ID))
	if err != nil || !mounted || !r.HostUsr {
		return mounted, err
	}
	below, err := loopfs.MountsBelow(s.At(r.ID))
	last := s.At(r.ID).In("usr", "local").Path()
	return slices.ContainsFunc(below, func(point confine.Entry) bool { return point.Path() == last }), err
}

func (s *Store) mount(ctx context.Context, r Request, lowers []confine.Entry) error {
	writable, err := s.mountWritable(ctx, r)
	if err != nil || r.Spare {
		return err
	}
	if err := s.unmountOwn(r.ID, 0); err != nil {
		return err
	}
	var dirs openDirs
	defer dirs.close()
	o := overlay{upper: dirs.open(writable.In("upper")), work: dirs.open(writable.In("work"))}
	if err := s.At(r.ID).EnsureDir(0o700); err != nil {
		return err
	}
	o.target = dirs.open(s.At(r.ID))
	if r.HostUsr {
		return s.mountHost(&dirs, o, s.At(r.ID), writable, lowers[0])
	}
	for _, lower := range lowers {
		o.lowers = append(o.lowers, dirs.open(lower))
	}
	if dirs.err != nil {
		return dirs.err
	}
	return mountOverlay(o)
}

// openDirs are directories that are open until the mounts of which they are part are made. The first that cannot be opened is remembered.
type openDirs struct {
	files []*os.File
	err   error
}

func (d *openDirs) open(dir confine.Entry) *os.File {
	return d.add(dir.Open(unix.O_PATH|unix.O_DIRECTORY, 0))
}

func (d *openDirs) add(f *os.File, err error) *os.File {
	if err != nil {
		d.err = errors.Join(d.err, err)
		return nil
	}
	d.files = append(d.files, f)
	return f
}

func (d *openDirs) close() {
	for _, f := range d.files {
		_ = f.Close()
	}
}

// mountHost lays this machine's /usr under the synthetic root: read-only, with an empty, writable /usr/local in place of the machine's own.
func (s *Store) mountHost(dirs *openDirs, o overlay, target, writable, synthetic confine.Entry) error {
	o.lowers = []*os.File{dirs.open(synthetic.In("root"))}
	machine := dirs.add(os.OpenFile(s.host.usr, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	below := overlay{lowers: []*os.File{dirs.open(synthetic.In("usr")), machine}, readOnly: true}
	local := dirs.add(makeLocal(writable.In("local")))
	if dirs.err != nil {
		return dirs.err
	}
	if err := mountOverlay(o); err != nil {
		return err
	}
	// What is below the mount is the sandbox's: each name there is looked up once, without links.
	usr := target.In("usr")
	if err := ensureDirectory(usr); err != nil {
		return err
	}
	if below.target = dirs.open(usr); dirs.err != nil {
		return dirs.err
	}
	if err := mountOverlay(below); err != nil {
		return err
	}
	return bindWithoutDevices(local, usr.In("local"))
}

// makeLocal makes what a sandbox has as /usr/local, or finds it, and opens it.
func makeLocal(local confine.Entry) (*os.File, error) {
	if err := local.EnsureDir(0o755); err != nil {
		return nil, err
	}
	dir, err := local.Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"bin", "lib", "sbin", "share", "include", "etc", "src"} {
		// A sandbox that slept may have put anything in its place; it stays.
		if err := unix.Mkdirat(int(dir.Fd()), name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, errors.Join(&os.PathError{Op: "mkdirat", Path: local.In(name).Path(), Err: err}, dir.Close())
		}
	}
	return dir, nil
}

// ensureDirectory puts a directory in place of a link that a sandbox may have left there: a mount must not follow it to somewhere of this machine.
func ensureDirectory(name confine.Entry) error {
	stat, err := name.Lstat()
	if err != nil || stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return err
	}
	return errors.Join(name.Remove(), name.Mkdir(0o755))
}

func bindWithoutDevices(source *os.File, target confine.Entry) error {
	mount, err := mountfd.Clone(source, false)
	if err != nil {
		return err
	}
	defer mount.Close()
	return mountfd.AttachWithoutDevices(mount, target)
}

// unmountOwn unmounts a root file system that no container runs on.
func (s *Store) unmountOwn(id string, flags int) error {
	mounted, err := loopfs.Mounted(s.At(id))
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
	return unmountTree(s.At(id), flags)
}

// unmountTree unmounts a target and what is mounted below it.
func unmountTree(target confine.Entry, flags int) error {
	below, err := loopfs.MountsBelow(target)
	if err != nil {
		return err
	}
	for _, point := range below {
		if err := mountfd.Unmount(point, flags); err != nil && !errors.Is(err, unix.EINVAL) {
			return hosterr.New(hosterr.Busy, "%s is in use: %v", point.Path(), err)
		}
	}
	return loopfs.Unmount(target, flags)
}

func (s *Store) read(id string) (record, error) {
	var found record
	err := s.shelf.Read(s.recordAt(id), &found)
	return found, err
}

// SourceDigest is what a root file system is made of.
func (s *Store) SourceDigest(id string) (string, error) {
	r, err := s.read(id)
	if errors.Is(err, os.ErrNotExist) {
		return "", hosterr.New(hosterr.NotFound, "root file system %s is not prepared", id)
	}
	return r.SourceDigest, err
}

// List is every root file system that was prepared and not released, mounted or not. One whose record was lost is known by its mount or its layer.
func (s *Store) List() ([]Rootfs, error) {
	ids, err := instance.IDsIn(s.tree.At("rootfs"), ".json")
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
		list = append(list, Rootfs{ID: id, Path: s.At(id).Path(), KeepKey: r.Request.KeepKey, SourceDigest: r.SourceDigest})
	}
	for _, trace := range []struct{ dir, suffix string }{{"mnt/rootfs", ""}, {"writable/ephemeral", ".img"}} {
		ids, err := instance.IDsIn(s.tree.At(trace.dir), trace.suffix)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if exists, err := s.recordAt(id).Exists(); known[id] || exists || err != nil {
				continue
			}
			known[id] = true
			list = append(list, Rootfs{ID: id, Path: s.At(id).Path()})
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
	for i := range list {
		at := s.At(list[i].ID)
		// Released meanwhile, or not mounted.
		if mounted, err := loopfs.Mounted(at); err != nil || !mounted {
			continue
		}
		// An overlay answers for the file system of its upper directory.
		size, used, err := loopfs.Usage(at)
		if err != nil {
			continue
		}
		list[i].Writable = &Fill{SizeBytes: size, UsedBytes: used}
	}
	return list, nil
}

// UsesLayer reports whether a root file system is stacked on a layer: by its record, or by the mount of one that has lost it.
func (s *Store) UsesLayer(id string) (bool, error) {
	if mounted, err := loopfs.NamedByMount(s.layers.At(id).Path()); err != nil || mounted {
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
	key, err := s.KeyOf(id)
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
	return s.recordAt(id).Remove()
}
