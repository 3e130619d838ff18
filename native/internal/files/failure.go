package files

import (
	"errors"
	"io/fs"

	"agent-sandbox.dev/native/internal/beneath"
	"golang.org/x/sys/unix"
)

// What can go wrong besides what the system says.
var (
	ErrIsDirectory  = errors.New("target path is a directory")
	ErrNotEmpty     = errors.New("directory is not empty; pass recursive=true to remove it")
	ErrRootRemoval  = errors.New("cannot delete the sandbox root; pass recursive=true to clear its contents")
	ErrNotRegular   = errors.New("path is not a regular file")
	ErrPrecondition = errors.New("the file is not in the state that the request requires")
	ErrIntoItself   = errors.New("a directory cannot be put into itself")
	ErrNeedsRecurse = errors.New("path is a directory; ask for a recursive copy")
	ErrTooDeep      = errors.New("directories are nested too deeply")
	ErrBadPattern   = errors.New("pattern is not valid")
	ErrBadArchive   = errors.New("archive is not valid")
	ErrBadAlgorithm = errors.New("unknown checksum algorithm; use sha256, sha512, sha1 or md5")
	ErrBadPage      = errors.New("page token is not valid")
)

// Failure is the error that a client gets: a class it can act on and a text without paths of the host.
type Failure struct {
	Class Class
	Text  string
}

// Class sorts failures by what a client can do.
type Class int

// The classes of Failure.
const (
	Internal Class = iota
	Invalid
	Denied
	NotFound
	Conflict
	Precondition
	Exhausted
)

var sentinels = []struct {
	err   error
	class Class
}{
	{beneath.ErrEscapes, Denied}, {beneath.ErrInvalid, Invalid}, {ErrIsDirectory, Invalid}, {ErrNotEmpty, Conflict}, {ErrRootRemoval, Conflict},
	{ErrNotRegular, Invalid}, {ErrPrecondition, Precondition}, {ErrIntoItself, Invalid}, {ErrNeedsRecurse, Invalid}, {ErrTooDeep, Invalid},
	{ErrBadPattern, Invalid}, {ErrBadArchive, Invalid}, {ErrBadAlgorithm, Invalid}, {ErrBadPage, Invalid},
}

var systemFailures = []struct {
	err     unix.Errno
	failure Failure
}{
	{unix.ENOTDIR, Failure{NotFound, "path does not exist within the sandbox"}},
	{unix.ENOTEMPTY, Failure{Conflict, "directory is not empty"}},
	{unix.EISDIR, Failure{Invalid, "target path is a directory"}},
	{unix.ELOOP, Failure{Invalid, "path has too many symbolic links"}},
	{unix.ENAMETOOLONG, Failure{Invalid, "path is too long"}},
	{unix.ENOSPC, Failure{Exhausted, "no space left on device"}},
	{unix.EDQUOT, Failure{Exhausted, "disk quota exceeded"}},
	{unix.EFBIG, Failure{Exhausted, "file is too large"}},
	{unix.EROFS, Failure{Denied, "read-only file system"}},
	{unix.ENXIO, Failure{Invalid, "path is not a regular file"}},
	{unix.EBUSY, Failure{Conflict, "path is in use"}},
}

// Explain turns an error into the one that a client gets.
func Explain(err error) Failure {
	for _, known := range sentinels {
		if errors.Is(err, known.err) {
			return Failure{known.class, err.Error()}
		}
	}
	for _, known := range systemFailures {
		if errors.Is(err, known.err) {
			return known.failure
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Failure{NotFound, "path does not exist within the sandbox"}
	case errors.Is(err, fs.ErrExist):
		return Failure{Conflict, "path exists already"}
	case errors.Is(err, fs.ErrPermission):
		return Failure{Denied, "permission denied"}
	}
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return Failure{Internal, pathError.Err.Error()}
	}
	return Failure{Internal, err.Error()}
}
