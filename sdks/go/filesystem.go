package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

var (
	_ fs.ReadFileFS = (*Files)(nil)
	_ fs.ReadDirFS  = (*Files)(nil)
	_ fs.StatFS     = (*Files)(nil)
)

// Open opens a file or directory below "/", as fs.FS wants it.
func (f *Files) Open(name string) (fs.File, error) {
	info, err := f.Stat(name)
	if err != nil {
		return nil, asPathError("open", name, err)
	}
	if info.IsDir() {
		entries, err := f.ReadDir(name)
		return &openDirectory{info: info, entries: entries}, err
	}
	content, err := f.ReadStream(context.Background(), rooted(name))
	if err != nil {
		return nil, asPathError("open", name, err)
	}
	return &openFile{ReadCloser: content, info: info}, nil
}

// ReadFile returns a file's contents, as fs.ReadFileFS wants it.
func (f *Files) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readfile", Path: name, Err: fs.ErrInvalid}
	}
	content, err := f.Read(context.Background(), rooted(name))
	return content, asPathError("readfile", name, err)
}

// Stat describes a path, as fs.StatFS wants it.
func (f *Files) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	info, err := f.Info(context.Background(), rooted(name))
	if err != nil {
		return nil, asPathError("stat", name, err)
	}
	return statInfo{info}, nil
}

// ReadDir lists a directory by name, as fs.ReadDirFS wants it.
func (f *Files) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	var entries []fs.DirEntry
	for info, err := range f.List(context.Background(), rooted(name), 1) {
		if err != nil {
			return nil, asPathError("readdir", name, err)
		}
		entries = append(entries, fs.FileInfoToDirEntry(statInfo{info}))
	}
	return entries, nil
}

func rooted(name string) string {
	if name == "." {
		return "/"
	}
	return "/" + name
}

var pathErrors = map[errorcode.Code]error{
	errorcode.NotFound: fs.ErrNotExist, errorcode.FileExists: fs.ErrExist, errorcode.PermissionDenied: fs.ErrPermission,
	errorcode.InvalidArgument: fs.ErrInvalid,
}

// asPathError makes errors.Is work with what fs defines, and keeps ours underneath.
func asPathError(op, name string, err error) error {
	var already *fs.PathError
	if err == nil || errors.As(err, &already) {
		return err
	}
	if known := pathErrors[CodeOf(err)]; known != nil {
		err = errors.Join(known, err)
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// statInfo is a FileInfo in the shape of fs.
type statInfo struct{ info *FileInfo }

func (s statInfo) Name() string       { return s.info.Name }
func (s statInfo) Size() int64        { return s.info.SizeBytes }
func (s statInfo) ModTime() time.Time { return s.info.ModifiedAt }
func (s statInfo) IsDir() bool        { return s.info.Type == "directory" }
func (s statInfo) Sys() any           { return s.info }

func (s statInfo) Mode() fs.FileMode {
	switch s.info.Type {
	case "directory":
		return s.info.Mode | fs.ModeDir
	case "symlink":
		return s.info.Mode | fs.ModeSymlink
	case "other":
		return s.info.Mode | fs.ModeIrregular
	}
	return s.info.Mode
}

type openFile struct {
	io.ReadCloser
	info fs.FileInfo
}

func (o *openFile) Stat() (fs.FileInfo, error) { return o.info, nil }

type openDirectory struct {
	info    fs.FileInfo
	entries []fs.DirEntry
}

func (o *openDirectory) Stat() (fs.FileInfo, error) { return o.info, nil }
func (o *openDirectory) Close() error               { return nil }

func (o *openDirectory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: o.info.Name(), Err: errors.New("is a directory")}
}

func (o *openDirectory) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		rest := o.entries
		o.entries = nil
		return rest, nil
	}
	if len(o.entries) == 0 {
		return nil, io.EOF
	}
	rest := o.entries[:min(n, len(o.entries))]
	o.entries = o.entries[len(rest):]
	return rest, nil
}
