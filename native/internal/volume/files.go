package volume

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// File is one file of a files volume.
type File struct {
	Path          string `json:"path"`
	ContentBase64 string `json:"contentBase64"`
	Mode          uint32 `json:"mode"`
	UID           *int   `json:"uid,omitempty"`
	GID           *int   `json:"gid,omitempty"`
}

// FilesRequest replaces the content of a files volume.
type FilesRequest struct {
	ID    string `json:"id"`
	Files []File `json:"files"`
}

// Kubernetes bounds an object to 1.5 MiB; a projected volume joins several.
const (
	filesMax      = 4096
	filesBytesMax = 16 << 20
	currentLink   = "..data"
)

// FilesDir is the directory of a files volume.
func (s *Store) FilesDir(id string) (confine.Entry, error) {
	dir := s.tree.At("files", id)
	if exists, err := dir.Exists(); err != nil || !exists {
		return dir, hosterr.New(hosterr.NotFound, "files volume %s does not exist", id)
	}
	return dir, nil
}

// WriteFiles writes a new version beside the old one and swaps one link, so that a reader never sees a mixture.
func (s *Store) WriteFiles(r FilesRequest) error {
	if err := instance.CheckID("id", r.ID); err != nil {
		return err
	}
	if len(r.Files) > filesMax {
		return hosterr.New(hosterr.InvalidArgument, "files: %d are more than %d", len(r.Files), filesMax)
	}
	dir := s.tree.At("files", r.ID)
	if err := dir.EnsureRootDir(0o755, 0); err != nil {
		return err
	}
	version, err := dir.MakeTempDir("..v", 0o755)
	if err != nil {
		return err
	}
	tops, err := writeVersion(version, r.Files)
	if err == nil {
		err = swap(dir, version, tops)
	}
	if err != nil {
		return errors.Join(err, version.RemoveAll())
	}
	return prune(dir, version, tops)
}

func writeVersion(version confine.Entry, files []File) (tops map[string]bool, err error) {
	opened, err := version.OpenDir()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	dir, err := os.OpenRoot(confine.ProcPath(opened))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	tops = map[string]bool{}
	total := 0
	for i, file := range files {
		name, err := confine.Relative(fmt.Sprintf("files[%d].path", i), file.Path)
		if err != nil {
			return nil, err
		}
		if err := checkSegments(i, name); err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, "..") || name == "." {
			return nil, hosterr.New(hosterr.InvalidArgument, "files[%d].path: %q begins with ..", i, file.Path)
		}
		content, err := base64.StdEncoding.DecodeString(file.ContentBase64)
		if err != nil {
			return nil, hosterr.New(hosterr.InvalidArgument, "files[%d].contentBase64: %v", i, err)
		}
		if total += len(content); total > filesBytesMax {
			return nil, hosterr.New(hosterr.InvalidArgument, "files: more than %d bytes", filesBytesMax)
		}
		if file.Mode > 0o777 {
			return nil, hosterr.New(hosterr.InvalidArgument, "files[%d].mode: %#o is more than 0777", i, file.Mode)
		}
		if err := writeOne(dir, name, content, file); err != nil {
			return nil, err
		}
		tops[strings.SplitN(name, "/", 2)[0]] = true
	}
	return tops, nil
}

// segmentBytesMax is the kernel's bound on one name.
const segmentBytesMax = 255

func checkSegments(i int, name string) error {
	for _, part := range strings.Split(name, "/") {
		if len(part) > segmentBytesMax {
			return hosterr.New(hosterr.InvalidArgument, "files[%d].path: a segment has more than %d bytes", i, segmentBytesMax)
		}
	}
	return nil
}

func writeOne(dir *os.Root, name string, content []byte, file File) error {
	if err := dir.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		if errors.Is(err, os.ErrExist) || errors.Is(err, unix.ENOTDIR) {
			return hosterr.New(hosterr.InvalidArgument, "files: %q is below another file: %v", name, err)
		}
		return err
	}
	// Of two files with one name the later one counts.
	if err := dir.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return hosterr.New(hosterr.InvalidArgument, "files: %q is above another file: %v", name, err)
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	uid, gid := -1, -1
	if file.UID != nil {
		uid = *file.UID
	}
	if file.GID != nil {
		gid = *file.GID
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chown(uid, gid), f.Chmod(os.FileMode(file.Mode)), f.Close())
}

func swap(dir, version confine.Entry, tops map[string]bool) error {
	link := dir.In("..data_tmp")
	if err := link.Remove(); err != nil {
		return err
	}
	if err := link.Symlink(version.Base()); err != nil {
		return err
	}
	if err := link.Rename(dir.In(currentLink)); err != nil {
		return err
	}
	for top := range tops {
		if err := dir.In(top).Symlink(filepath.Join(currentLink, top)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// prune removes older versions, those of killed writes included, and the links of files that are no more.
func prune(dir, version confine.Entry, tops map[string]bool) error {
	entries, err := dir.ReadDir()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == currentLink || name == version.Base() || tops[name] {
			continue
		}
		if err := dir.In(name).RemoveAll(); err != nil {
			return err
		}
	}
	return nil
}

// RemoveFiles deletes a files volume.
func (s *Store) RemoveFiles(id string) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	return s.tree.At("files", id).RemoveAll()
}

// ListFiles is the ids of all files volumes.
func (s *Store) ListFiles() ([]string, error) { return instance.IDsIn(s.tree.At("files"), "") }
