package ociruntime

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// CheckpointRequest saves a sandbox.
type CheckpointRequest struct {
	ID           string `json:"id"`
	ImagePath    string `json:"imagePath"`
	LeaveRunning bool   `json:"leaveRunning,omitempty"`
	FreeBytesMin *int64 `json:"freeBytesMin,omitempty"`
}

// Checkpoint is a finished one.
type Checkpoint struct {
	SizeBytes      int64  `json:"sizeBytes"`
	RuntimeVersion string `json:"runtimeVersion"`
}

// manifest is written last; an image without it, or whose files differ from it, is not one.
type manifest struct {
	RuntimeVersion string           `json:"runtimeVersion"`
	Files          map[string]int64 `json:"files"`
}

const (
	manifestName        = "manifest.json"
	freeBytesMinDefault = 1 << 30
)

// Checkpoint saves a sandbox into a directory that appears whole or not at all.
func (e *Engine) Checkpoint(ctx context.Context, r CheckpointRequest) (Checkpoint, error) {
	rec, err := e.readRecord(r.ID)
	if err != nil {
		return Checkpoint{}, err
	}
	if rec.Runtime != Runsc {
		return Checkpoint{}, hosterr.New(hosterr.Unsupported, "only runsc takes checkpoints")
	}
	if !rec.isRoot() {
		return Checkpoint{}, hosterr.New(hosterr.InvalidArgument, "id: %s joined a sandbox; only the whole of it is saved", r.ID)
	}
	if s, err := e.state(rec); err != nil {
		return Checkpoint{}, err
	} else if s.Status != "running" && s.Status != "paused" {
		return Checkpoint{}, hosterr.New(hosterr.Busy, "container %s is %s", r.ID, s.Status)
	}
	target, release, err := e.newImageDir(r.ImagePath)
	if err != nil {
		return Checkpoint{}, err
	}
	defer release()
	if err := e.checkFree(target, r); err != nil {
		return Checkpoint{}, err
	}
	work := target + ".tmp"
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o700)); err != nil {
		return Checkpoint{}, err
	}
	made, err := e.checkpointTo(ctx, r, work)
	if err == nil {
		err = os.Rename(work, target)
	}
	if err != nil {
		return Checkpoint{}, errors.Join(err, os.RemoveAll(work))
	}
	return made, nil
}

func (e *Engine) checkpointTo(ctx context.Context, r CheckpointRequest, dir string) (Checkpoint, error) {
	args := []string{"checkpoint", "--image-path=" + dir, "--compression=none"}
	if r.LeaveRunning {
		args = append(args, "--leave-running")
	}
	if _, err := e.call(ctx, Runsc, r.ID, append(args, runtimeID(r.ID))...); err != nil {
		return Checkpoint{}, err
	}
	return e.sealImage(dir)
}

// sealImage makes sure that what was saved is on disk, and writes down what it is.
func (e *Engine) sealImage(dir string) (Checkpoint, error) {
	m := manifest{RuntimeVersion: e.features[Runsc].Version, Files: map[string]int64{}}
	total, err := walkImage(dir, m.Files)
	if err != nil {
		return Checkpoint{}, err
	}
	if m.Files["checkpoint.img"] == 0 {
		return Checkpoint{}, hosterr.New(hosterr.SnapshotUnusable, "runsc wrote no state")
	}
	text, err := json.Marshal(m)
	if err != nil {
		return Checkpoint{}, err
	}
	if err := confine.WriteFile(filepath.Join(dir, manifestName), text, 0o600); err != nil {
		return Checkpoint{}, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return Checkpoint{}, err
	}
	defer f.Close()
	// Near a full disk an image was seen to be cut short without an error: writing it out finds that here, not at the restore.
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return Checkpoint{}, err
	}
	err = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, e.config.EngineUID, e.config.EngineGID))
	})
	return Checkpoint{SizeBytes: total, RuntimeVersion: m.RuntimeVersion}, err
}

func walkImage(dir string, files map[string]int64) (int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return 0, err
		}
		if !info.Mode().IsRegular() || entry.Name() == manifestName {
			continue
		}
		files[entry.Name()] = info.Size()
		total += info.Size()
	}
	return total, nil
}

// newImageDir resolves a directory that is to be made.
func (e *Engine) newImageDir(name string) (target string, release func(), err error) {
	clean, err := confine.Relative("imagePath", name)
	if err != nil {
		return "", nil, err
	}
	parent, err := confine.Beneath(e.inst.NodeDir(), filepath.Dir(clean))
	if err != nil {
		return "", nil, hosterr.New(hosterr.NotFound, "imagePath: the directory of %s does not exist", name)
	}
	target = filepath.Join(confine.ProcPath(parent), filepath.Base(clean))
	// The runtime is another process: the descriptor's number means nothing to it.
	target = strings.Replace(target, "/proc/self/", "/proc/"+strconv.Itoa(os.Getpid())+"/", 1)
	if _, err := os.Lstat(target); err == nil {
		parent.Close()
		return "", nil, hosterr.New(hosterr.AlreadyExists, "imagePath: %s exists", name)
	}
	return target, func() { parent.Close() }, nil
}

func (e *Engine) checkFree(target string, r CheckpointRequest) error {
	least := int64(freeBytesMinDefault)
	if r.FreeBytesMin != nil {
		least = *r.FreeBytesMin
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(target), &stat); err != nil {
		return err
	}
	if free := int64(stat.Bavail) * stat.Bsize; free < least {
		return hosterr.New(hosterr.NoSpace, "%d bytes are free, a checkpoint needs %d to stay so", free, least)
	}
	return nil
}

// checkImage refuses an image that another version wrote or that is not whole.
func (e *Engine) checkImage(name string) (string, error) {
	clean, err := confine.Relative("restore.imagePath", name)
	if err != nil {
		return "", err
	}
	dir, err := confine.Beneath(e.inst.NodeDir(), clean)
	if err != nil {
		return "", hosterr.New(hosterr.NotFound, "restore.imagePath: %s does not exist", name)
	}
	defer dir.Close()
	text, err := os.ReadFile(filepath.Join(confine.ProcPath(dir), manifestName))
	if err != nil {
		return "", hosterr.New(hosterr.SnapshotUnusable, "%s is not a finished checkpoint: %v", name, err)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return "", hosterr.New(hosterr.SnapshotUnusable, "%s: %v", name, err)
	}
	if version := e.features[Runsc].Version; m.RuntimeVersion != version {
		return "", hosterr.New(hosterr.SnapshotUnusable, "%s was written by runsc %s, this is %s", name, m.RuntimeVersion, version)
	}
	found := map[string]int64{}
	if _, err := walkImage(confine.ProcPath(dir), found); err != nil {
		return "", err
	}
	for file, size := range m.Files {
		if found[file] != size {
			return "", hosterr.New(hosterr.SnapshotUnusable, "%s: %s has %d bytes, %d were written", name, file, found[file], size)
		}
	}
	return filepath.Join(e.inst.NodeDir(), clean), nil
}
