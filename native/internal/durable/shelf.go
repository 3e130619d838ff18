package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sort"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
)

// A record of a hundred layers takes a hundredth of this.
const recordBytesMax = 1 << 20

// namesMax bounds how many names of a shelf are listed: the Node's condition has to hold them.
const namesMax = 100

// Checked is a record that can tell whether what was read is one.
type Checked interface{ Check() error }

// Shelf reads records, and keeps those that cannot be read in `bad/`, for an operator to look at. Its whole state is in its directory.
type Shelf struct{ dir confine.Entry }

// NewShelf opens the shelf of a tree of records.
func NewShelf(tree *confine.Tree) (*Shelf, error) {
	s := &Shelf{dir: tree.At("bad")}
	return s, s.dir.EnsureRootDir(0o700, 0)
}

// Read reads a record. One that is empty, torn or not what it should be is put on the shelf; it is then as absent as one that never was, which
// the error says in both cases.
func (s *Shelf) Read(name confine.Entry, into Checked) error {
	text, err := name.ReadFile(recordBytesMax)
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

// setAside moves a record to the shelf, under a name that tells which one it was. Two readers may find it at once; one of them moves it.
func (s *Shelf) setAside(name confine.Entry, why error) error {
	kept := s.dir.In(fmt.Sprintf("%s.bad-%d", strings.ReplaceAll(name.Name(), "/", "."), time.Now().UnixNano()))
	if err := name.Rename(kept); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("bad record %s: %w", name.Path(), err)
	}
	slog.Error("a record cannot be read and was set aside", "record", name.Path(), "kept", kept.Path(), "error", why.Error())
	return nil
}

// Names is what lies on the shelf.
func (s *Shelf) Names() ([]string, error) {
	entries, err := s.dir.ReadDir()
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
