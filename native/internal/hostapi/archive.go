package hostapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"agent-sandbox.dev/native/internal/archive"
	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/loopfs"
	"agent-sandbox.dev/native/internal/ociruntime"
)

// archiveFile is one thing of a snapshot: `saved` for a saved state, or a kind of image.
type archiveFile struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

type packRequest struct {
	ID    string        `json:"id"`
	Files []archiveFile `json:"files"`
	Part  int           `json:"part"`
	// To is the node's file; empty: only what is known of a part that was packed before.
	To string `json:"to,omitempty"`
}

// packed is a part, or that it was not packed yet.
type packed struct {
	Part *archive.Part `json:"part,omitempty"`
}

type sealRequest struct {
	ID    string          `json:"id"`
	Entry json.RawMessage `json:"entry"`
}

type sealedEntry struct {
	ID     string `json:"id"`
	Sealed string `json:"sealed"`
}

type unpackRequest struct {
	ID     string        `json:"id"`
	Sealed string        `json:"sealed"`
	Files  []archiveFile `json:"files"`
	Part   int           `json:"part"`
	// From is the node's file; empty: which part is next, or, where all are in, the places that are still missing.
	From string `json:"from,omitempty"`
}

// unpackedParts is which part is next, or that all files are in their places.
type unpackedParts struct {
	Part int  `json:"part"`
	Done bool `json:"done,omitempty"`
}

// archiveFilesMax is more than a Sandbox has containers and volumes.
const archiveFilesMax = 1024

func archiveKeys(id string, files []archiveFile) []string {
	keys := []string{"archive/" + id}
	for _, file := range files {
		if file.Kind == "saved" {
			keys = append(keys, "saved/"+file.ID)
			continue
		}
		keys = append(keys, lockKinds[file.Kind]+"/"+file.ID)
	}
	return keys
}

func checkArchive(id string, files []archiveFile, part int) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	if part < 0 {
		return hosterr.New(hosterr.InvalidArgument, "part: %d is less than 0", part)
	}
	if len(files) > archiveFilesMax {
		return hosterr.New(hosterr.InvalidArgument, "files: %d are more than %d", len(files), archiveFilesMax)
	}
	for i, file := range files {
		if err := instance.CheckID(fmt.Sprintf("files[%d].id", i), file.ID); err != nil {
			return err
		}
		if _, isImage := lockKinds[file.Kind]; !isImage && file.Kind != "saved" {
			return hosterr.New(hosterr.InvalidArgument, "files[%d].kind: %q is neither saved, writable, volume nor empty-dir", i, file.Kind)
		}
	}
	return nil
}

func (h *Host) packArchive(ctx context.Context, r packRequest) (packed, error) {
	if err := checkArchive(r.ID, r.Files, r.Part); err != nil {
		return packed{}, err
	}
	if r.To == "" {
		part, found, err := h.Archive.Packed(r.ID, r.Part)
		if !found {
			return packed{}, err
		}
		return packed{Part: &part}, nil
	}
	items, err := h.openItems(r.Files)
	defer closeItems(items)
	if err != nil {
		return packed{}, err
	}
	part, err := h.Archive.Pack(ctx, r.ID, r.Part, r.To, items)
	return packed{Part: &part}, err
}

// openItems opens the files of a snapshot; those that were opened before an error are returned with it.
func (h *Host) openItems(files []archiveFile) ([]archive.Item, error) {
	var items []archive.Item
	labels := archiveLabels(files)
	for _, file := range files {
		opened, err := h.openArchiveFile(file)
		if errors.Is(err, os.ErrNotExist) {
			err = hosterr.New(hosterr.NotFound, "there is no %s %s", file.Kind, file.ID)
		}
		if err != nil {
			return items, err
		}
		for _, f := range opened {
			item := archive.Item{Label: labels[len(items)], File: f}
			info, err := f.Stat()
			if err == nil {
				item.SizeBytes = info.Size()
			}
			items = append(items, item)
			if err != nil {
				return items, err
			}
		}
	}
	return items, nil
}

func closeItems(items []archive.Item) {
	for _, item := range items {
		_ = item.File.Close()
	}
}

func (h *Host) openArchiveFile(file archiveFile) ([]*os.File, error) {
	if file.Kind == "saved" {
		return h.Engine.OpenSaved(file.ID)
	}
	image, target := h.imageOf(file)
	f, err := loopfs.OpenUnmounted(image, target)
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}

// imageOf is where an image is. Preconditions: its kind is one of an image's.
func (h *Host) imageOf(file archiveFile) (image, target confine.Entry) {
	switch file.Kind {
	case "writable":
		return h.Rootfs.Image(file.ID)
	case "volume":
		return h.Volumes.Image(file.ID)
	}
	return h.Volumes.EmptyDirImage(file.ID)
}

// archiveLabels names every file by its place in the request and by what it is, never by the id that it has on one machine.
func archiveLabels(files []archiveFile) []string {
	labels := []string{}
	for i, file := range files {
		if file.Kind != "saved" {
			labels = append(labels, fmt.Sprintf("%d/%s", i, file.Kind))
			continue
		}
		for _, name := range ociruntime.SavedFiles() {
			labels = append(labels, fmt.Sprintf("%d/saved/%s", i, name))
		}
	}
	return labels
}

func (h *Host) unpackArchive(ctx context.Context, r unpackRequest) (unpackedParts, error) {
	if err := checkArchive(r.ID, r.Files, r.Part); err != nil {
		return unpackedParts{}, err
	}
	unpacking := archive.Unpacking{ID: r.ID, Sealed: []byte(r.Sealed), Labels: archiveLabels(r.Files)}
	if r.From == "" {
		part, isWhole, err := h.Archive.Next(unpacking)
		if err != nil || !isWhole {
			return unpackedParts{Part: part}, err
		}
		r.Part = part
	}
	part, isDone, err := h.Archive.Unpack(ctx, unpacking, r.Part, r.From, func(files []confine.Entry) error {
		return h.placeArchive(r.Files, files)
	})
	return unpackedParts{Part: part, Done: isDone}, err
}

// placeArchive gives unpacked files their names, memory last: what it refers to is there before it.
func (h *Host) placeArchive(files []archiveFile, unpacked []confine.Entry) error {
	var saved []func() error
	for _, file := range files {
		if file.Kind == "saved" {
			count := len(ociruntime.SavedFiles())
			own := unpacked[:count]
			saved = append(saved, func() error { return h.Engine.AdoptSaved(file.ID, own) })
			unpacked = unpacked[count:]
			continue
		}
		image, _ := h.imageOf(file)
		if err := loopfs.Adopt(unpacked[0], image); err != nil {
			return err
		}
		unpacked = unpacked[1:]
	}
	for _, adopt := range saved {
		if err := adopt(); err != nil {
			return err
		}
	}
	return nil
}
