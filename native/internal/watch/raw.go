package watch

import (
	"encoding/binary"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// raw is one event as the kernel writes it.
type raw struct {
	watch  int32
	mask   uint32
	cookie uint32
	name   string
	size   int
}

func parseRaw(buffer []byte) raw {
	length := int(binary.NativeEndian.Uint32(buffer[12:]))
	end := min(unix.SizeofInotifyEvent+length, len(buffer))
	return raw{
		watch: int32(binary.NativeEndian.Uint32(buffer)), mask: binary.NativeEndian.Uint32(buffer[4:]), cookie: binary.NativeEndian.Uint32(buffer[8:]),
		name: strings.TrimRight(string(buffer[unix.SizeofInotifyEvent:end]), "\x00"), size: unix.SizeofInotifyEvent + length,
	}
}

// handle turns a kernel event into one of ours; a zero Event means there is nothing to report.
func (w *Watch) handle(r raw) (Event, error) {
	if r.mask&unix.IN_Q_OVERFLOW != 0 {
		return Event{Type: Overflow, Path: w.top}, nil
	}
	at, known := w.paths[r.watch]
	if !known {
		return Event{}, nil
	}
	if r.mask&unix.IN_IGNORED != 0 {
		delete(w.paths, r.watch)
		if w.watches[at] == r.watch {
			delete(w.watches, at)
		}
		return Event{}, nil
	}
	if r.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0 {
		if at == w.top {
			return Event{}, ErrRemoved
		}
		return Event{}, nil
	}
	if r.name == "" {
		// A directory's own attributes are reported by its parent.
		return Event{}, nil
	}
	return w.named(r, path.Join(at, r.name))
}

func (w *Watch) named(r raw, at string) (Event, error) {
	event := Event{Path: at, Directory: r.mask&unix.IN_ISDIR != 0}
	if r.mask&unix.IN_MOVED_FROM != 0 {
		err := w.flushMoved()
		w.moved = &half{cookie: r.cookie, path: at, directory: event.Directory}
		return Event{}, err
	}
	switch {
	case r.mask&unix.IN_MOVED_TO != 0:
		return w.movedTo(r, event)
	case r.mask&unix.IN_CREATE != 0:
		event.Type = Create
		if w.announced[at] {
			delete(w.announced, at)
			return Event{}, nil
		}
	case r.mask&unix.IN_MODIFY != 0:
		event.Type = Write
	case r.mask&unix.IN_DELETE != 0:
		event.Type = Remove
		delete(w.announced, at)
	case r.mask&unix.IN_ATTRIB != 0:
		event.Type = Attributes
	}
	return event, nil
}

// movedTo is a rename when its first half was seen here, else something that came from outside.
func (w *Watch) movedTo(r raw, event Event) (Event, error) {
	first := w.moved
	if first == nil || first.cookie != r.cookie {
		event.Type = Create
		return event, nil
	}
	w.moved = nil
	w.repath(first.path, event.Path)
	if strings.HasPrefix(path.Base(first.path), hiddenPrefix) {
		// To everybody else, a file written in one step simply appears.
		event.Type = Create
		return event, nil
	}
	event.Type, event.OldPath = Rename, first.path
	return event, nil
}

// repath renames the watches of a directory that moved.
func (w *Watch) repath(from, to string) {
	for number, at := range w.paths {
		if rest, ok := strings.CutPrefix(at, from); ok && (rest == "" || rest[0] == '/') {
			w.paths[number] = to + rest
			delete(w.watches, at)
			w.watches[to+rest] = number
		}
	}
}

// flushMoved reports a first half whose second never came: the thing left the watched tree.
func (w *Watch) flushMoved() error {
	first := w.moved
	if first == nil {
		return nil
	}
	w.moved = nil
	for number, at := range w.paths {
		if at == first.path || strings.HasPrefix(at, first.path+"/") {
			unix.InotifyRmWatch(w.fd, uint32(number))
			delete(w.paths, number)
			delete(w.watches, at)
		}
	}
	return w.emit(Event{Type: Remove, Path: first.path, Directory: first.directory})
}
