package archive

import (
	"encoding/json"
	"errors"
	"slices"

	"agent-sandbox.dev/native/internal/hosterr"
)

// Index is what an archive's entry in the store has inside: what the node says of it, and of which files and parts it is.
type Index struct {
	// Entry is the node's own text.
	Entry    json.RawMessage `json:"entry"`
	Contents []Content       `json:"contents"`
	Parts    []Part          `json:"parts"`
}

// sealed is an entry as it lies in the store. The key of the archive is in it, wrapped by one of the engine's: another wrapping changes nothing else.
type sealed struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	KeyID   string `json:"keyId"`
	Wrapped []byte `json:"wrapped"`
	Body    []byte `json:"body"`
}

func aboutIndex(id string) []byte { return []byte("index\x00" + id) }

// Seal makes the entry of an archive whose parts are all packed.
func (s *Store) Seal(id string, entry json.RawMessage) ([]byte, error) {
	p, err := s.readPacking(id)
	if err != nil {
		return nil, err
	}
	if !p.isWhole() {
		return nil, hosterr.New(hosterr.Busy, "archive %s has %d parts and not yet its last", id, len(p.Parts))
	}
	key, err := s.keys.Current()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(Index{Entry: entry, Contents: p.Contents, Parts: p.Parts})
	if err != nil {
		return nil, hosterr.New(hosterr.InvalidArgument, "entry: %v", err)
	}
	by, err := newSealer(p.DataKey, "index")
	if err != nil {
		return nil, err
	}
	wrapped, err := wrap(key, id, p.DataKey)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealed{Version: 1, ID: id, KeyID: key.ID, Wrapped: wrapped, Body: by.seal(compress(body), aboutIndex(id))})
}

// open is an entry's own key and what is inside. The id is the one that the caller asked for, not the one that the entry says.
func (r *Keyring) open(id string, text []byte) (sealed, []byte, Index, error) {
	var entry sealed
	var index Index
	if err := json.Unmarshal(text, &entry); err != nil {
		return entry, nil, index, hosterr.New(hosterr.InvalidArgument, "sealed: is not the entry of an archive: %v", err)
	}
	if entry.Version != 1 {
		return entry, nil, index, hosterr.New(hosterr.InvalidArgument, "sealed: version %d is not 1", entry.Version)
	}
	if entry.ID != id {
		return entry, nil, index, damaged("the entry of archive %s is that of another", id)
	}
	key, err := r.find(entry.KeyID)
	if err != nil {
		return entry, nil, index, err
	}
	dataKey, err := unwrap(key, id, entry.Wrapped)
	if err != nil {
		return entry, nil, index, damaged("the key of archive %s: %v", id, err)
	}
	by, err := newSealer(dataKey, "index")
	if err != nil {
		return entry, nil, index, err
	}
	packed, err := by.open(entry.Body, aboutIndex(id))
	if err == nil {
		packed, err = decompress(packed)
	}
	if err == nil {
		err = json.Unmarshal(packed, &index)
	}
	if err == nil && len(index.Parts) == 0 {
		err = errors.New("it names no parts")
	}
	if err != nil {
		return entry, nil, index, damaged("the entry of archive %s: %v", id, err)
	}
	return entry, dataKey, index, nil
}

// Open reads an entry.
func (r *Keyring) Open(id string, text []byte) (Index, error) {
	_, _, index, err := r.open(id, text)
	return index, err
}

// Open reads an entry.
func (s *Store) Open(id string, text []byte) (Index, error) { return s.keys.Open(id, text) }

// Rewrap is an entry with its key wrapped by the current key of the engine; the same text where it is already.
func (r *Keyring) Rewrap(id string, text []byte) ([]byte, error) {
	entry, dataKey, _, err := r.open(id, text)
	if err != nil {
		return nil, err
	}
	key, err := r.Current()
	if err != nil || key.ID == entry.KeyID {
		return slices.Clone(text), err
	}
	if entry.Wrapped, err = wrap(key, id, dataKey); err != nil {
		return nil, err
	}
	entry.KeyID = key.ID
	return json.Marshal(entry)
}
