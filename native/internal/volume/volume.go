// Package volume keeps what is mounted into containers besides their root: volumes with a size, empty directories, and files of the API.
package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/loopfs"
	"agent-sandbox.dev/native/internal/mountfd"
	"golang.org/x/sys/unix"
)

// Request asks for a volume of a size.
type Request struct {
	ID        string `json:"id"`
	SizeBytes int64  `json:"sizeBytes"`
	Gid       *int   `json:"gid,omitempty"`
}

// Volume is a volume on disk.
type Volume struct {
	ID        string `json:"id"`
	SizeBytes int64  `json:"sizeBytes"`
	UsedBytes int64  `json:"usedBytes"`
	Mounted   bool   `json:"mounted"`
}

// EmptyDirRequest asks for an empty directory.
type EmptyDirRequest struct {
	ID        string `json:"id"`
	SizeBytes int64  `json:"sizeBytes,omitempty"`
	Memory    bool   `json:"memory,omitempty"`
	Gid       *int   `json:"gid,omitempty"`
	// NodeReads lets the node's group pass through to what the sandbox wrote; other users of the host do not get in.
	NodeReads bool `json:"nodeReads,omitempty"`
}

// Store is all volumes of an instance. Its whole state is in the data directory and the mount table.
type Store struct {
	tree    *confine.Tree
	nodeGID int
}

// NewStore opens the volumes that the helper's directory holds.
func NewStore(tree *confine.Tree, nodeGID int) (*Store, error) {
	for _, dir := range []string{"volumes", "mnt/volumes", "files"} {
		if err := tree.At(dir).EnsureRootDir(0o700, 0); err != nil {
			return nil, err
		}
	}
	// The node passes through here to the directories that it may read, and lists nothing.
	for _, dir := range []string{"", "mnt", "mnt/empty", "empty"} {
		if err := tree.At(dir).EnsureRootDir(0o710, nodeGID); err != nil {
			return nil, err
		}
	}
	return &Store{tree: tree, nodeGID: nodeGID}, errors.Join(
		loopfs.Recover(tree.At("volumes"), tree.At("mnt/volumes")), loopfs.Recover(tree.At("empty"), tree.At("mnt/empty")))
}

func (s *Store) image(id string) confine.Entry { return s.tree.At("volumes", id+".img") }

func (s *Store) mountPoint(id string) confine.Entry { return s.tree.At("mnt/volumes", id) }

// templates is where images are copied from.
func (s *Store) templates() confine.Entry { return s.tree.At("writable", "templates") }

// root is the directory that containers see: below the mount, so that ext4's lost+found stays out of sight.
func (s *Store) root(id string) confine.Entry { return s.mountPoint(id).In("root") }

// Resolve is the directory of a mounted volume.
func (s *Store) Resolve(id string) (confine.Entry, error) {
	mounted, err := loopfs.Mounted(s.mountPoint(id))
	if err == nil && !mounted {
		err = hosterr.New(hosterr.NotFound, "volume %s is not mounted", id)
	}
	return s.root(id), err
}

// Ensure makes, grows and mounts a volume.
func (s *Store) Ensure(ctx context.Context, r Request) (Volume, error) {
	if err := instance.CheckID("id", r.ID); err != nil {
		return Volume{}, err
	}
	if r.SizeBytes < loopfs.SizeMin {
		return Volume{}, hosterr.New(hosterr.InvalidArgument, "sizeBytes: %d is less than %d", r.SizeBytes, loopfs.SizeMin)
	}
	if err := loopfs.EnsureMounted(ctx, s.image(r.ID), s.mountPoint(r.ID), r.SizeBytes, s.templates()); err != nil {
		return Volume{}, err
	}
	if err := makeRoot(s.root(r.ID), r.Gid); err != nil {
		return Volume{}, err
	}
	return s.stat(r.ID)
}

// makeRoot makes the directory that containers see. With a group it belongs to it, and so does what is made inside.
func makeRoot(dir confine.Entry, gid *int) error {
	if gid != nil && *gid < 0 {
		return hosterr.New(hosterr.InvalidArgument, "gid: %d is negative", *gid)
	}
	made := dir.Mkdir(0o700)
	if made != nil && !errors.Is(made, os.ErrExist) {
		return made
	}
	f, err := dir.OpenDir()
	if err != nil {
		return err
	}
	defer f.Close()
	if made == nil {
		// A fresh volume is writable by whatever user the container runs as, as on most provisioners.
		err = f.Chmod(0o777)
	}
	if err != nil || gid == nil {
		return err
	}
	return errors.Join(f.Chown(-1, *gid), f.Chmod(0o775|os.ModeSetgid))
}

func (s *Store) stat(id string) (Volume, error) {
	stat, err := s.image(id).Lstat()
	if err != nil {
		return Volume{}, err
	}
	v := Volume{ID: id, SizeBytes: stat.Size, UsedBytes: stat.Blocks * 512}
	mounted, err := loopfs.Mounted(s.mountPoint(id))
	if err != nil || !mounted {
		return v, err
	}
	v.Mounted = true
	_, v.UsedBytes, err = loopfs.Usage(s.mountPoint(id))
	return v, err
}

// List is every volume on disk.
func (s *Store) List() ([]Volume, error) {
	ids, err := instance.IDsIn(s.tree.At("volumes"), ".img")
	if err != nil {
		return nil, err
	}
	list := []Volume{}
	for _, id := range ids {
		v, err := s.stat(id)
		if errors.Is(err, os.ErrNotExist) {
			// Deleted meanwhile.
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// Snapshot opens a copy of a volume's image as it is at one moment, and tells how long its writers waited.
func (s *Store) Snapshot(ctx context.Context, id string, bounds loopfs.SnapshotBounds) (*os.File, time.Duration, error) {
	return loopfs.Snapshot(ctx, s.image(id), s.mountPoint(id), bounds)
}

// Clone makes a volume of another one, as that is at one moment. One that is there already is left as it is.
func (s *Store) Clone(ctx context.Context, from, to string, bounds loopfs.SnapshotBounds) (loopfs.Copied, error) {
	return loopfs.Clone(ctx, s.image(from), s.mountPoint(from), s.image(to), bounds)
}

// CloneEmptyDir does the same for an empty directory that has an image of its own.
func (s *Store) CloneEmptyDir(ctx context.Context, from, to string, bounds loopfs.SnapshotBounds) (loopfs.Copied, error) {
	return loopfs.Clone(ctx, s.emptyImage(from), s.emptyMount(from), s.emptyImage(to), bounds)
}

// Image is where the image of a volume is, and where it is mounted.
func (s *Store) Image(id string) (image, target confine.Entry) { return s.image(id), s.mountPoint(id) }

// EmptyDirImage is the same of an empty directory that has an image of its own.
func (s *Store) EmptyDirImage(id string) (image, target confine.Entry) {
	return s.emptyImage(id), s.emptyMount(id)
}

// Release unmounts a volume.
func (s *Store) Release(id string, flags int) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	return loopfs.Unmount(s.mountPoint(id), flags)
}

// Delete unmounts a volume and deletes what is in it.
func (s *Store) Delete(id string) error {
	if err := s.Release(id, 0); err != nil {
		return err
	}
	return errors.Join(s.image(id).Remove(), s.image(id).WithSuffix(".tmp").Remove())
}

func (s *Store) emptyMount(id string) confine.Entry { return s.tree.At("mnt/empty", id) }

func (s *Store) emptyPlace(id string) confine.Entry { return s.tree.At("empty", id) }

func (s *Store) emptyImage(id string) confine.Entry { return s.emptyPlace(id).WithSuffix(".img") }

// EnsureEmptyDir makes an empty directory: in memory, in an image of its own, or, without a limit, plainly on disk.
func (s *Store) EnsureEmptyDir(ctx context.Context, r EmptyDirRequest) error {
	if err := instance.CheckID("id", r.ID); err != nil {
		return err
	}
	if r.SizeBytes < 0 || (r.SizeBytes > 0 && r.SizeBytes < loopfs.SizeMin) {
		return hosterr.New(hosterr.InvalidArgument, "sizeBytes: %d is less than %d", r.SizeBytes, loopfs.SizeMin)
	}
	if r.Memory && r.SizeBytes == 0 {
		return hosterr.New(hosterr.InvalidArgument, "sizeBytes: a directory in memory needs a limit")
	}
	dir := s.emptyMount(r.ID)
	switch {
	case r.Memory:
		if err := mountTmpfs(dir, r.SizeBytes); err != nil {
			return err
		}
	case r.SizeBytes > 0:
		if err := loopfs.EnsureMounted(ctx, s.emptyImage(r.ID), dir, r.SizeBytes, s.templates()); err != nil {
			return err
		}
	default:
		dir = s.emptyPlace(r.ID)
		if err := dir.EnsureDir(0o700); err != nil {
			return err
		}
	}
	if err := s.guard(dir, r.NodeReads); err != nil {
		return err
	}
	return makeRoot(dir.In("root"), r.Gid)
}

// guard keeps other users of the host out of what a sandbox writes, whatever modes it gives to its files.
func (s *Store) guard(dir confine.Entry, nodeReads bool) error {
	f, err := dir.OpenDir()
	if err != nil {
		return err
	}
	defer f.Close()
	gid, mode := 0, os.FileMode(0o700)
	if nodeReads {
		gid, mode = s.nodeGID, 0o710
	}
	return errors.Join(f.Chown(0, gid), f.Chmod(mode))
}

func mountTmpfs(target confine.Entry, sizeBytes int64) error {
	mounted, err := loopfs.Mounted(target)
	if err != nil || mounted {
		return err
	}
	options := []mountfd.Option{{Name: "source", Value: "tmpfs"}, {Name: "size", Value: fmt.Sprint(sizeBytes)}, {Name: "mode", Value: "0700"}}
	mount, err := mountfd.Make("tmpfs", options, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return err
	}
	defer mount.Close()
	return errors.Join(target.EnsureDir(0o700), mountfd.Attach(mount, target))
}

// ResolveEmptyDir is the directory of an empty directory that was made.
func (s *Store) ResolveEmptyDir(id string) (confine.Entry, error) {
	for _, dir := range []confine.Entry{s.emptyMount(id), s.emptyPlace(id)} {
		if exists, err := dir.In("root").Exists(); err == nil && exists {
			return dir.In("root"), nil
		}
	}
	return confine.Entry{}, hosterr.New(hosterr.NotFound, "empty directory %s does not exist", id)
}

// RemoveEmptyDir deletes an empty directory and what was written there.
func (s *Store) RemoveEmptyDir(id string, flags int) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	if err := loopfs.Unmount(s.emptyMount(id), flags); err != nil {
		return err
	}
	return errors.Join(s.emptyImage(id).Remove(), s.emptyPlace(id).RemoveAll())
}

// ListEmptyDirs is the ids of all empty directories.
func (s *Store) ListEmptyDirs() ([]string, error) {
	seen := map[string]bool{}
	for _, dir := range []struct{ name, suffix string }{{"mnt/empty", ""}, {"empty", ""}, {"empty", ".img"}} {
		ids, err := instance.IDsIn(s.tree.At(dir.name), dir.suffix)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			seen[id] = true
		}
	}
	list := make([]string, 0, len(seen))
	for id := range seen {
		list = append(list, id)
	}
	return list, nil
}

// SubPath resolves a path below a directory that a sandbox may have written to, without following any link of its. A directory that is
// missing is made, as on Kubernetes.
func SubPath(root confine.Entry, sub string) (*os.File, error) {
	if sub == "" {
		sub = "."
	}
	name, err := confine.Relative("subPath", sub)
	if err != nil {
		return nil, err
	}
	dir, err := root.Open(unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := confine.OpenAt(dir, name, unix.O_PATH, 0, confine.Strictly)
	if errors.Is(err, os.ErrNotExist) {
		f, err = makeBelow(dir, name)
	}
	if hosterr.Is(err, hosterr.PathEscape) {
		return nil, hosterr.New(hosterr.PathEscape, "subPath: %s leads outside its volume", sub)
	}
	return f, err
}

// makeBelow makes the missing directories of a path, each with the permissions and the group of the volume's root, and opens the last.
func makeBelow(root *os.File, name string) (*os.File, error) {
	var like unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &like); err != nil {
		return nil, err
	}
	dir := root
	for _, part := range strings.Split(name, "/") {
		next, err := openOrMake(dir, part, like)
		if dir != root {
			_ = dir.Close()
		}
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

func openOrMake(dir *os.File, part string, like unix.Stat_t) (*os.File, error) {
	next, err := confine.OpenAt(dir, part, unix.O_PATH|unix.O_DIRECTORY, 0, confine.Strictly)
	if !errors.Is(err, os.ErrNotExist) {
		return next, err
	}
	if err := unix.Mkdirat(int(dir.Fd()), part, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdirat", Path: part, Err: err}
	}
	if next, err = confine.OpenAt(dir, part, unix.O_PATH|unix.O_DIRECTORY, 0, confine.Strictly); err != nil {
		return nil, err
	}
	// Whatever was put in its place meanwhile, the descriptor is that of a directory below the root.
	made := confine.ProcPath(next)
	if err := errors.Join(os.Chown(made, int(like.Uid), int(like.Gid)), unix.Chmod(made, like.Mode&0o7777)); err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}
