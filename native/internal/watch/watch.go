// Package watch reports changes below a directory.
package watch

import (
	"errors"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"agent-sandbox.dev/native/internal/beneath"
	"golang.org/x/sys/unix"
)

// Type says what happened.
type Type int

// The types of Event.
const (
	Create Type = iota + 1
	Write
	Remove
	Rename
	Attributes
	// Overflow says that events were lost because the reader was slow.
	Overflow
)

// Event is one change; paths are absolute.
type Event struct {
	Type      Type
	Path      string
	OldPath   string
	Directory bool
}

// ErrRemoved ends a watch whose directory has been deleted or moved away.
var ErrRemoved = errors.New("the watched directory is gone")

// hiddenPrefix starts the names of files being written by this daemon.
const hiddenPrefix = ".sandboxd-tmp-"

const mask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// Watch is a running watch.
//
// Bound: nothing is queued here. A slow reader fills the kernel's own queue (fs.inotify.max_queued_events), whose overflow
// is reported as an Overflow event.
type Watch struct {
	events    chan Event
	closed    chan struct{}
	closeOnce sync.Once
	err       error

	file      *os.File
	fd        int
	top       string
	recursive bool
	paths     map[int32]string
	watches   map[string]int32
	// announced holds what a scan of a new directory reported before the kernel did.
	announced map[string]bool
	moved     *half
}

// half is the first half of a rename.
type half struct {
	cookie    uint32
	path      string
	directory bool
}

// Open starts watching a directory. Every change after it returns is reported.
func Open(root *beneath.Root, name string, recursive bool) (*Watch, error) {
	directory, place, err := root.OpenFile(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	defer place.Close()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &Watch{
		events: make(chan Event), closed: make(chan struct{}), file: os.NewFile(uintptr(fd), "inotify"), fd: fd, top: place.Path(), recursive: recursive,
		paths: map[int32]string{}, watches: map[string]int32{}, announced: map[string]bool{},
	}
	if err := w.add(directory, w.top, nil); err != nil {
		w.file.Close()
		return nil, err
	}
	go w.run()
	return w, nil
}

// Events delivers changes until the watch ends; then Err says why.
func (w *Watch) Events() <-chan Event { return w.events }

// Err is why Events was closed; nil after Close.
func (w *Watch) Err() error { return w.err }

// Close ends the watch.
func (w *Watch) Close() {
	w.closeOnce.Do(func() {
		close(w.closed)
		w.file.Close()
	})
}

// add watches an open directory and, if asked, those below it; found is called for each entry below.
func (w *Watch) add(directory *os.File, at string, found func(path string, isDirectory bool) bool) error {
	// By descriptor, so that a swapped link cannot lead the watch elsewhere.
	number, err := unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(int(directory.Fd())), mask)
	if err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	w.paths[int32(number)], w.watches[at] = at, int32(number)
	if !w.recursive {
		return nil
	}
	entries, err := directory.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		below := path.Join(at, entry.Name())
		if found != nil && !found(below, entry.IsDir()) {
			return nil
		}
		if entry.IsDir() {
			if err := w.addBelow(directory, entry.Name(), below, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// addBelow watches a directory inside an open one; that it has vanished is no error.
func (w *Watch) addBelow(parent *os.File, name, at string, found func(string, bool) bool) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(parent.Fd()), name, flags, 0)
	if err != nil {
		return nil
	}
	child := os.NewFile(uintptr(fd), at)
	defer child.Close()
	return w.add(child, at, found)
}

func (w *Watch) run() {
	defer close(w.events)
	defer w.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			select {
			case <-w.closed:
			default:
				w.err = err
			}
			return
		}
		if err := w.batch(buffer[:n]); err != nil {
			if err != errStopped {
				w.err = err
			}
			return
		}
	}
}

var errStopped = errors.New("stopped")

func (w *Watch) emit(event Event) error {
	if event.Type != Overflow && strings.HasPrefix(path.Base(event.Path), hiddenPrefix) {
		return nil
	}
	select {
	case w.events <- event:
		return nil
	case <-w.closed:
		return errStopped
	}
}

// batch handles one read; a rename's two halves always arrive in one.
func (w *Watch) batch(buffer []byte) error {
	var last Event
	for len(buffer) >= unix.SizeofInotifyEvent {
		raw := parseRaw(buffer)
		buffer = buffer[min(len(buffer), raw.size):]
		event, err := w.handle(raw)
		if err != nil {
			return err
		}
		if event.Type == 0 || event.Type == Write && event == last {
			continue
		}
		last = event
		if err := w.emit(event); err != nil {
			return err
		}
		if event.Directory && w.recursive && event.Type == Create {
			if err := w.enter(event.Path); err != nil {
				return err
			}
		}
	}
	return w.flushMoved()
}

// enter watches a directory that has just appeared and reports what is in it already.
func (w *Watch) enter(at string) error {
	parent, err := os.OpenFile(path.Dir(at), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer parent.Close()
	var stopped error
	err = w.addBelow(parent, path.Base(at), at, func(found string, isDirectory bool) bool {
		w.announced[found] = true
		stopped = w.emit(Event{Type: Create, Path: found, Directory: isDirectory})
		return stopped == nil
	})
	if stopped != nil {
		return stopped
	}
	return err
}
