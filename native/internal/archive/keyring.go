// Package archive turns the files of a snapshot into parts that may leave the machine, and back: compressed, encrypted and in an order that cannot be changed unnoticed.
package archive

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// keyBytes is what AES-256 takes.
const keyBytes = 32

// ringBytesMax is more than ten thousand keys take.
const ringBytesMax = 1 << 20

// Key is one key of the engine's. It wraps the keys of archives and encrypts nothing else.
type Key struct {
	ID     string    `json:"id"`
	Key    []byte    `json:"key"`
	MadeAt time.Time `json:"madeAt"`
}

// Keys is every key that an archive may still need, and the one that wraps what is written from here on.
type Keys struct {
	Version int    `json:"version"`
	Current string `json:"current"`
	// Previous was current before: an entry that was sealed with it may just be on its way to the store.
	Previous string `json:"previous,omitempty"`
	Keys     []Key  `json:"keys"`
}

// Check refuses what is not a set of keys.
func (k *Keys) Check() error {
	if k.Version != 1 || len(k.Keys) == 0 {
		return errors.New("it is not a set of archive keys of version 1")
	}
	for i, key := range k.Keys {
		if len(key.Key) != keyBytes || key.ID != idOf(key.Key) {
			return fmt.Errorf("keys[%d]: %q is not the id of a key of %d bytes", i, key.ID, keyBytes)
		}
	}
	if k.find(k.Current) == nil {
		return fmt.Errorf("current: there is no key %q", k.Current)
	}
	return nil
}

func (k *Keys) find(id string) *Key {
	for i := range k.Keys {
		if k.Keys[i].ID == id {
			return &k.Keys[i]
		}
	}
	return nil
}

// idOf names a key without telling anything of it.
func idOf(key []byte) string {
	sum := sha256.Sum256(append([]byte("agent-sandbox archive key\x00"), key...))
	return hex.EncodeToString(sum[:8])
}

func newKey() Key {
	key := make([]byte, keyBytes)
	// It ends the program where the kernel gives no random bytes.
	_, _ = rand.Read(key)
	return Key{ID: idOf(key), Key: key, MadeAt: time.Now().UTC()}
}

// Keyring is the file of the keys, root's alone. It is read at each use: a command may change it while a helper runs. A file that cannot be read is an error and
// never replaced, because a fresh key would open nothing that was written before.
type Keyring struct{ dir confine.Entry }

// NewKeyring opens the keys of a helper's directory; it makes none.
func NewKeyring(tree *confine.Tree) (*Keyring, error) {
	r := &Keyring{dir: tree.At("archive")}
	if err := r.dir.EnsureRootDir(0o700, 0); err != nil {
		return nil, err
	}
	return r, r.locked(func() error { return durable.Tidy(r.dir) })
}

// locked runs a change of the file while no other program, and no other call of this one, changes it.
func (r *Keyring) locked(run func() error) error {
	lock, err := r.dir.In("keys.lock").Open(unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return err
	}
	return run()
}

func (r *Keyring) file() confine.Entry { return r.dir.In("keys.json") }

// Read is the keys; os.ErrNotExist before the first was made.
func (r *Keyring) Read() (Keys, error) {
	text, err := r.file().ReadFile(ringBytesMax)
	if err != nil {
		return Keys{}, err
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return Keys{}, fmt.Errorf("%s: %w", r.file().Path(), err)
	}
	return keys, nil
}

// ParseKeys reads what Read and an export have.
func ParseKeys(text []byte) (Keys, error) {
	var keys Keys
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&keys); err != nil {
		return keys, fmt.Errorf("it is not a set of archive keys: %w", err)
	}
	return keys, keys.Check()
}

// Current is the key that wraps; the first use makes it.
func (r *Keyring) Current() (Key, error) {
	keys, err := r.Read()
	if errors.Is(err, os.ErrNotExist) {
		err = r.locked(func() (err error) {
			if keys, err = r.Read(); !errors.Is(err, os.ErrNotExist) {
				return err
			}
			made := newKey()
			keys = Keys{Version: 1, Current: made.ID, Keys: []Key{made}}
			return durable.Write(r.file(), &keys)
		})
	}
	if err != nil {
		return Key{}, err
	}
	return *keys.find(keys.Current), nil
}

// find is the key with an id.
func (r *Keyring) find(id string) (Key, error) {
	keys, err := r.Read()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Key{}, err
	}
	if key := keys.find(id); key != nil {
		return *key, nil
	}
	return Key{}, hosterr.New(hosterr.NotFound, "key %s is not among this engine's archive keys: import it with agent-sandbox archive key import", id)
}

// Rotate makes a key that wraps what is written from here on. Earlier ones stay.
func (r *Keyring) Rotate() (Keys, error) {
	return r.change(func(keys *Keys) {
		made := newKey()
		keys.Previous, keys.Current, keys.Keys = keys.Current, made.ID, append(keys.Keys, made)
	})
}

// Import adds keys. An engine that has none takes over which is current; another keeps its own.
func (r *Keyring) Import(more Keys) (Keys, error) {
	return r.change(func(keys *Keys) {
		if len(keys.Keys) == 0 {
			keys.Current = more.Current
		}
		for _, key := range more.Keys {
			if keys.find(key.ID) == nil {
				keys.Keys = append(keys.Keys, key)
			}
		}
	})
}

// Retire removes the keys that no archive needs: all but those named, the current one and the one that was current before.
func (r *Keyring) Retire(needed []string) (Keys, error) {
	return r.change(func(keys *Keys) {
		needed = append(slices.Clone(needed), keys.Current, keys.Previous)
		keys.Keys = slices.DeleteFunc(keys.Keys, func(key Key) bool { return !slices.Contains(needed, key.ID) })
	})
}

func (r *Keyring) change(edit func(*Keys)) (keys Keys, err error) {
	err = r.locked(func() (err error) {
		if keys, err = r.Read(); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		keys.Version = 1
		edit(&keys)
		if err := keys.Check(); err != nil {
			return err
		}
		return durable.Write(r.file(), &keys)
	})
	return keys, err
}
