package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"agent-sandbox.dev/native/internal/archive"
	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/instance"
)

// inputBytesMax bounds what a command reads: the entries of many archives.
const inputBytesMax = 1 << 30

// archiveEntry is one entry of the index on its way in or out; Index, Sealed or Error says what became of it.
type archiveEntry struct {
	ID     string         `json:"id"`
	Sealed string         `json:"sealed,omitempty"`
	Index  *archive.Index `json:"index,omitempty"`
	Error  string         `json:"error,omitempty"`
}

// archiveCommand does with the archive keys of a data directory what root asks for, whether an engine runs there or not. Standard input and output are JSON.
func archiveCommand(args []string, in io.Reader, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("must be started by root")
	}
	flags := flag.NewFlagSet("archive", flag.ContinueOnError)
	dataDir := flags.String("data-dir", "/var/lib/agent-sandbox", "directory that holds everything of the instance")
	if err := flags.Parse(args); err != nil {
		return err
	}
	inst, err := instance.New(*dataDir, "/run/agent-sandbox")
	if err != nil {
		return err
	}
	tree, err := confine.OpenTree(inst.Host())
	if err != nil {
		return err
	}
	defer tree.Close()
	ring, err := archive.NewKeyring(tree)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(in, inputBytesMax))
	if err != nil {
		return err
	}
	answer, err := carryOut(ring, flags.Arg(0), text)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

func carryOut(ring *archive.Keyring, verb string, text []byte) (any, error) {
	switch verb {
	case "export":
		keys, err := ring.Read()
		if errors.Is(err, os.ErrNotExist) {
			return nil, errors.New("this engine has no archive key yet: the first archive makes it")
		}
		return keys, err
	case "import":
		more, err := archive.ParseKeys(text)
		if err != nil {
			return nil, err
		}
		return named(ring.Import(more))
	case "rotate":
		return named(ring.Rotate())
	case "retire":
		var needed []string
		if err := json.Unmarshal(text, &needed); err != nil {
			return nil, err
		}
		return named(ring.Retire(needed))
	case "open":
		return eachEntry(text, func(entry *archiveEntry) error {
			index, err := ring.Open(entry.ID, []byte(entry.Sealed))
			entry.Index, entry.Sealed = &index, ""
			return err
		})
	case "rewrap":
		return eachEntry(text, func(entry *archiveEntry) error {
			sealed, err := ring.Rewrap(entry.ID, []byte(entry.Sealed))
			entry.Sealed = string(sealed)
			return err
		})
	}
	return nil, fmt.Errorf("%q is not one of export, import, rotate, retire, open and rewrap", verb)
}

// named tells the ids of keys and nothing else of them.
func named(keys archive.Keys, err error) (map[string]any, error) {
	ids := []string{}
	for _, key := range keys.Keys {
		ids = append(ids, key.ID)
	}
	return map[string]any{"current": keys.Current, "keys": ids}, err
}

// eachEntry goes on after an entry that it cannot read: the others are as good as before.
func eachEntry(text []byte, act func(*archiveEntry) error) ([]archiveEntry, error) {
	var entries []archiveEntry
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, err
	}
	for i := range entries {
		if err := act(&entries[i]); err != nil {
			entries[i] = archiveEntry{ID: entries[i].ID, Error: err.Error()}
		}
	}
	return entries, nil
}
