package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A record of a hundred layers takes a hundredth of this.
const recordBytesMax = 1 << 20

// namesMax bounds what is told of a shelf; one bad record is one too many.
const namesMax = 100

// Checked is a record that can tell whether what was read is one.
type Checked interface{ Check() error }

// Shelf reads records, and keeps those that cannot be read for somebody to look at. Its whole state is in its directory.
type Shelf struct {
	// root is what a record's name on the shelf is relative to.
	root, dir string
}

// NewShelf opens the shelf of a directory of records.
func NewShelf(root string) (*Shelf, error) {
	s := &Shelf{root: root, dir: filepath.Join(root, "bad")}
	return s, os.MkdirAll(s.dir, 0o700)
}

// Read reads a record. One that is empty, torn or not what it should be is put on the shelf; it is then as absent as one that never was, which
// the error says in both cases.
func (s *Shelf) Read(name string, into Checked) error {
	text, err := readFile(name)
	if err != nil {
		return err
	}
	bad := json.Unmarshal(text, into)
	if bad == nil {
		bad = into.Check()
	}
	if bad == nil {
		return nil
	}
	return errors.Join(os.ErrNotExist, s.setAside(name, bad))
}

func readFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, recordBytesMax))
}

// setAside moves a record to the shelf. Two readers may find it at once; one of them moves it.
func (s *Shelf) setAside(name string, why error) error {
	relative, err := filepath.Rel(s.root, name)
	if err != nil {
		return err
	}
	kept := fmt.Sprintf("%s.bad-%d", strings.ReplaceAll(relative, "/", "."), time.Now().UnixNano())
	if err := os.Rename(name, filepath.Join(s.dir, kept)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("bad record %s: %w", name, err)
	}
	slog.Error("a record cannot be read and was set aside", "record", name, "kept", filepath.Join(s.dir, kept), "error", why.Error())
	return nil
}

// Names is what lies on the shelf.
func (s *Shelf) Names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	sort.Strings(names)
	return names[:min(len(names), namesMax)], nil
}
