package files

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"agent-sandbox.dev/native/internal/beneath"
	"golang.org/x/sys/unix"
)

// copyBytes is how much of a body is held in memory at once.
const copyBytes = 128 << 10

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyBytes); return &b }}

// defaultFileMode is what a written file gets when the request names no mode.
const defaultFileMode = 0o644

// WriteOptions say how a file is written.
type WriteOptions struct {
	// Mode is applied exactly; nil keeps an existing file's mode and owner.
	Mode *uint32
	// IfMatch and IfNoneMatch hold entity tags, or "*", as HTTP has them; empty means no condition.
	IfMatch, IfNoneMatch string
	// Append adds to the end, in place. Offset writes there, in place. Otherwise the file is replaced in one step.
	Append bool
	Offset *int64
	// Sync returns only when the contents are on disk.
	Sync bool
}

// Write stores a body. A reader of the path sees the old contents or all of the new, unless Append or Offset is used.
func (s *Space) Write(name string, body io.Reader, options WriteOptions) (Info, error) {
	place, err := s.Root.Resolve(name, true)
	if err != nil {
		return Info{}, err
	}
	defer place.Close()
	if place.IsDirectory() {
		return Info{}, ErrIsDirectory
	}
	if err := checkConditions(place, options); err != nil {
		return Info{}, err
	}
	if err := place.MakeParents(0o755); err != nil {
		return Info{}, err
	}
	if options.Append || options.Offset != nil {
		return s.writeInPlace(place, body, options)
	}
	return s.replace(place, body, options)
}

// replace writes a temporary file and renames it over the target.
func (s *Space) replace(place *beneath.Place, body io.Reader, options WriteOptions) (Info, error) {
	temporary, err := openTemporary(place.Directory())
	if err != nil {
		return Info{}, err
	}
	defer temporary.discard()
	if err := copyBody(temporary.file, body); err != nil {
		return Info{}, err
	}
	if err := temporary.dress(place, options); err != nil {
		return Info{}, err
	}
	lock := s.lockFor(place)
	lock.Lock()
	defer lock.Unlock()
	if options.IfMatch != "" || options.IfNoneMatch != "" {
		if err := recheckConditions(place, options); err != nil {
			return Info{}, err
		}
	}
	if err := temporary.become(place.Name, options.IfNoneMatch == "*"); err != nil {
		return Info{}, err
	}
	return statPlace(place)
}

func (s *Space) writeInPlace(place *beneath.Place, body io.Reader, options WriteOptions) (Info, error) {
	lock := s.lockFor(place)
	lock.Lock()
	defer lock.Unlock()
	if err := recheckConditions(place, options); err != nil {
		return Info{}, err
	}
	flags, mode := unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK, uint32(defaultFileMode)
	if options.Append {
		flags |= unix.O_APPEND
	}
	if options.Mode != nil {
		mode = *options.Mode
	}
	file, err := place.Open(flags, mode)
	if err != nil {
		return Info{}, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return Info{}, errors.Join(err, ErrNotRegular)
	}
	if options.Mode != nil {
		if err := file.Chmod(os.FileMode(mode)); err != nil {
			return Info{}, err
		}
	}
	if options.Offset != nil {
		if _, err := file.Seek(*options.Offset, io.SeekStart); err != nil {
			return Info{}, err
		}
	}
	if err := copyBody(file, body); err != nil {
		return Info{}, err
	}
	if options.Sync {
		if err := file.Sync(); err != nil {
			return Info{}, err
		}
	}
	return statPlace(place)
}

func (s *Space) lockFor(place *beneath.Place) *sync.Mutex {
	hash := fnv.New32a()
	io.WriteString(hash, place.Path())
	return &s.locks[hash.Sum32()%uint32(len(s.locks))]
}

func statPlace(place *beneath.Place) (Info, error) {
	if err := unix.Fstatat(place.Directory(), place.Name, &place.Stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Info{}, err
	}
	place.Exists = true
	return infoOf(place), nil
}

func copyBody(file *os.File, body io.Reader) error {
	buffer := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buffer)
	_, err := io.CopyBuffer(struct{ io.Writer }{file}, body, *buffer)
	return err
}

// checkConditions judges by what the walk saw.
func checkConditions(place *beneath.Place, options WriteOptions) error {
	tag := ""
	if place.Exists {
		tag = ETag(&place.Stat)
	}
	if options.IfMatch != "" && !matches(options.IfMatch, tag) {
		return ErrPrecondition
	}
	if options.IfNoneMatch != "" && matches(options.IfNoneMatch, tag) {
		return ErrPrecondition
	}
	return nil
}

// recheckConditions judges again, now that no other conditional write can come between.
func recheckConditions(place *beneath.Place, options WriteOptions) error {
	err := unix.Fstatat(place.Directory(), place.Name, &place.Stat, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && err != unix.ENOENT {
		return err
	}
	place.Exists = err == nil
	return checkConditions(place, options)
}

// matches says whether a list of entity tags, or "*", covers a file; an absent file has no tag.
func matches(list, tag string) bool {
	if tag == "" {
		return false
	}
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == "*" || one == tag {
			return true
		}
	}
	return false
}

// temporary is a file that has no place yet. Where the file system can, it has no name either, so that a crash leaves
// nothing behind.
type temporary struct {
	file      *os.File
	directory int
	name      string
}

func openTemporary(directory int) (*temporary, error) {
	fd, err := unix.Openat(directory, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return &temporary{file: os.NewFile(uintptr(fd), "unnamed"), directory: directory}, nil
	}
	name := temporaryName()
	fd, err = unix.Openat(directory, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return &temporary{file: os.NewFile(uintptr(fd), name), directory: directory, name: name}, nil
}

func temporaryName() string {
	var random [8]byte
	rand.Read(random[:])
	return temporaryPrefix + hex.EncodeToString(random[:])
}

// dress gives the file its mode and owner before anybody can see it.
func (t *temporary) dress(place *beneath.Place, options WriteOptions) error {
	mode := uint32(defaultFileMode)
	if place.Exists {
		mode = place.Stat.Mode & 0o7777
		// Only root may give files away; everybody else keeps what they write.
		unix.Fchown(int(t.file.Fd()), int(place.Stat.Uid), int(place.Stat.Gid))
	}
	if options.Mode != nil {
		mode = *options.Mode
	}
	if err := unix.Fchmod(int(t.file.Fd()), mode); err != nil {
		return err
	}
	if options.Sync {
		return t.file.Sync()
	}
	return nil
}

// become gives the file its name; with exclusive it must not exist.
func (t *temporary) become(name string, exclusive bool) error {
	if exclusive {
		return preconditionIfExists(t.link(name))
	}
	if t.name == "" {
		hidden := temporaryName()
		if err := t.link(hidden); err != nil {
			return err
		}
		t.name = hidden
	}
	if err := unix.Renameat(t.directory, t.name, t.directory, name); err != nil {
		return err
	}
	t.name = ""
	return nil
}

// link adds a name; unlike a rename it never replaces one.
func (t *temporary) link(name string) error {
	if t.name != "" {
		return unix.Linkat(t.directory, t.name, t.directory, name, 0)
	}
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(t.file.Fd())), t.directory, name, unix.AT_SYMLINK_FOLLOW)
}

func preconditionIfExists(err error) error {
	if err == unix.EEXIST {
		return ErrPrecondition
	}
	return err
}

func (t *temporary) discard() {
	t.file.Close()
	if t.name != "" {
		unix.Unlinkat(t.directory, t.name, 0)
	}
}
