package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

// partBytesMax is how much content a part has before it is compressed; what waits on the disk for its way out is never more.
const partBytesMax = 128 << 20

// recordBytesMax is what the record of an archive of some terabytes takes.
const recordBytesMax = 64 << 20

// Item is one file of an archive. Its label says what it is, on this machine and on the one that it is brought back to.
type Item struct {
	Label     string
	SizeBytes int64
	File      *os.File
}

// Content is what an archive says of an item.
type Content struct {
	Label     string `json:"label"`
	SizeBytes int64  `json:"sizeBytes"`
}

// Part is one object of an archive: encrypted, of a bounded size.
type Part struct {
	SizeBytes    int64  `json:"sizeBytes"`
	SHA256       string `json:"sha256"`
	ContentBytes int64  `json:"contentBytes"`
	Chunks       int64  `json:"chunks"`
	Last         bool   `json:"last,omitempty"`
}

// Store packs and unpacks. Its whole state is in its directory: one record for each archive on its way out, one record and the files for each on its way back.
type Store struct {
	dir  confine.Entry
	node confine.Caller
	keys *Keyring
	// room refuses so many more bytes on the disk.
	room func(bytes int64) error
	// partBytes is partBytesMax; tests have smaller parts.
	partBytes int64
}

// NewStore opens what is on its way.
func NewStore(tree *confine.Tree, node confine.Caller, room func(bytes int64) error) (*Store, error) {
	keys, err := NewKeyring(tree)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: tree.At("archive"), node: node, keys: keys, room: room, partBytes: partBytesMax}
	for _, name := range []string{"packing", "unpacking"} {
		if err := s.dir.In(name).EnsureRootDir(0o700, 0); err != nil {
			return nil, err
		}
		if err := durable.Tidy(s.dir.In(name)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Forget removes what is on its way under an id, in either direction. Nothing is not an error.
func (s *Store) Forget(id string) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	return errors.Join(s.packingRecord(id).Remove(), s.unpackingRecord(id).Remove(), s.unpackingDir(id).RemoveAll())
}

func readRecord(name confine.Entry, into any) error {
	text, err := name.ReadFile(recordBytesMax)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", name.Path(), err)
	}
	return nil
}

func damaged(format string, args ...any) error {
	return hosterr.New(hosterr.DigestMismatch, format, args...)
}
