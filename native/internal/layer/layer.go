// Package layer unpacks image layers, once each, into directories that overlayfs stacks.
package layer

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Request names a blob of the node's directory and what it must be.
type Request struct {
	BlobPath         string `json:"blobPath"`
	Digest           string `json:"digest"`
	DiffID           string `json:"diffId"`
	UnpackedBytesMax int64  `json:"unpackedBytesMax,omitempty"`
}

// Layer is a layer on disk.
type Layer struct {
	ID            string `json:"id"`
	UnpackedBytes int64  `json:"unpackedBytes"`
	Files         int    `json:"files"`
}

// Check refuses what is not the record of a layer.
func (l *Layer) Check() error { return CheckDigest("id", l.ID) }

// The default bound on what one layer unpacks to: larger than any published image, smaller than most disks.
const unpackedBytesMaxDefault = 64 << 30

// A zstd frame may ask for a window of any size; images use at most 8 MiB, the format's recommended bound.
const zstdWindowMax = 128 << 20

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// CheckDigest refuses what is not `sha256:` and 64 hex digits.
func CheckDigest(field, digest string) error {
	if !digestPattern.MatchString(digest) {
		return hosterr.New(hosterr.InvalidArgument, "%s: %q is not sha256:<64 hex digits>", field, digest)
	}
	return nil
}

// Store is the directory of unpacked layers. A layer is there whole or not at all: it appears by rename, after its digests were checked.
type Store struct {
	dir   confine.Entry
	node  confine.Caller
	shelf *durable.Shelf
}

// NewStore opens the layers that the helper's directory holds; blobs are the node's.
func NewStore(tree *confine.Tree, node confine.Caller, shelf *durable.Shelf) (*Store, error) {
	s := &Store{dir: tree.At("layers"), node: node, shelf: shelf}
	if err := s.dir.EnsureRootDir(0o700, 0); err != nil {
		return nil, err
	}
	return s, durable.Tidy(s.dir)
}

// At is where a layer's tree is.
func (s *Store) At(id string) confine.Entry { return s.dir.In(strings.TrimPrefix(id, "sha256:")) }

func (s *Store) recordAt(id string) confine.Entry { return s.At(id).WithSuffix(".json") }

// Unpack makes a layer, or finds it.
func (s *Store) Unpack(ctx context.Context, r Request) (Layer, error) {
	if err := errors.Join(CheckDigest("digest", r.Digest), CheckDigest("diffId", r.DiffID)); err != nil {
		return Layer{}, err
	}
	if r.UnpackedBytesMax < 0 {
		return Layer{}, hosterr.New(hosterr.InvalidArgument, "unpackedBytesMax: %d is negative", r.UnpackedBytesMax)
	}
	if _, err := confine.Relative("blobPath", r.BlobPath); err != nil {
		return Layer{}, err
	}
	if found, err := s.read(r.DiffID); err == nil || !hosterr.Is(err, hosterr.NotFound) {
		return found, err
	}
	blob, err := s.node.OpenFile("blobPath", r.BlobPath, unix.O_RDONLY, 0)
	if err != nil {
		return Layer{}, err
	}
	defer blob.Close()
	return s.unpack(ctx, r, blob)
}

func (s *Store) unpack(ctx context.Context, r Request, blob *os.File) (Layer, error) {
	work := s.At(r.DiffID).WithSuffix(".tmp")
	// A tree that a killed helper left is of no use: nothing tells where it stopped.
	if err := work.RemoveAll(); err != nil {
		return Layer{}, err
	}
	if err := work.Mkdir(0o755); err != nil {
		return Layer{}, err
	}
	layer, err := unpackTo(ctx, work, r, blob)
	if err == nil {
		err = s.commit(work, layer)
	}
	if err != nil {
		return Layer{}, errors.Join(err, work.RemoveAll())
	}
	return layer, nil
}

func unpackTo(ctx context.Context, dir confine.Entry, r Request, blob io.Reader) (Layer, error) {
	root, err := dir.OpenDir()
	if err != nil {
		return Layer{}, err
	}
	defer root.Close()
	blobHash, tarHash := sha256.New(), sha256.New()
	source := bufio.NewReaderSize(io.TeeReader(blob, blobHash), 1<<20)
	stream, err := decompress(source)
	if err != nil {
		return Layer{}, err
	}
	defer stream.Close()
	plain := io.TeeReader(stream, tarHash)
	u := &unpacker{root: root, bytesMax: r.UnpackedBytesMax, dirTimes: map[string]time.Time{}}
	if u.bytesMax == 0 {
		u.bytesMax = unpackedBytesMaxDefault
	}
	if err := u.unpack(ctx, tar.NewReader(plain)); err != nil {
		return Layer{}, err
	}
	// What follows the archive's end belongs to the digests too.
	if _, err := io.Copy(io.Discard, plain); err != nil {
		return Layer{}, hosterr.New(hosterr.DigestMismatch, "layer %s: %v", r.DiffID, err)
	}
	if _, err := io.Copy(io.Discard, source); err != nil {
		return Layer{}, err
	}
	if err := errors.Join(checkSum("blob", r.Digest, blobHash), checkSum("layer", r.DiffID, tarHash)); err != nil {
		return Layer{}, err
	}
	return Layer{ID: r.DiffID, UnpackedBytes: u.bytes, Files: u.files}, nil
}

func decompress(source *bufio.Reader) (io.ReadCloser, error) {
	magic, err := source.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(source)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		decoder, err := zstd.NewReader(source, zstd.WithDecoderMaxWindow(zstdWindowMax), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	}
	return io.NopCloser(source), nil
}

func checkSum(what, want string, h hash.Hash) error {
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != want {
		return hosterr.New(hosterr.DigestMismatch, "%s is %s, expected %s", what, got, want)
	}
	return nil
}

func (s *Store) commit(work confine.Entry, l Layer) error {
	if err := durable.Write(s.recordAt(l.ID), &l); err != nil {
		return err
	}
	dir, err := s.dir.OpenDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	// The layer must be on disk before its name is: a name without content after a power loss would be trusted for ever.
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return err
	}
	if err := work.Rename(s.At(l.ID)); err != nil {
		return err
	}
	return dir.Sync()
}

func (s *Store) read(id string) (Layer, error) {
	if !s.Has(id) {
		return Layer{}, hosterr.New(hosterr.NotFound, "layer %s is not unpacked", id)
	}
	var l Layer
	err := s.shelf.Read(s.recordAt(id), &l)
	if errors.Is(err, os.ErrNotExist) {
		return s.recount(id)
	}
	return l, err
}

// recount makes the record of a layer that has none: the tree itself is whole, and root file systems may be stacked on it.
func (s *Store) recount(id string) (Layer, error) {
	l := Layer{ID: id}
	tree, err := s.At(id).OpenDir()
	if errors.Is(err, os.ErrNotExist) {
		return Layer{}, hosterr.New(hosterr.NotFound, "layer %s was removed", id)
	}
	if err != nil {
		return Layer{}, err
	}
	defer tree.Close()
	seen := map[uint64]bool{}
	err = filepath.WalkDir(confine.ProcPath(tree)+"/", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		l.Files++
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && !seen[stat.Ino] {
			seen[stat.Ino] = true
			l.UnpackedBytes += info.Size()
		}
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		return Layer{}, hosterr.New(hosterr.NotFound, "layer %s was removed", id)
	}
	// The tree's own root is no entry of its archive.
	l.Files--
	return l, errors.Join(err, durable.Write(s.recordAt(id), &l))
}

// Has reports whether a layer is there.
func (s *Store) Has(id string) bool {
	exists, err := s.At(id).Exists()
	return exists && err == nil
}

// List is every layer on disk.
func (s *Store) List() ([]Layer, error) {
	entries, err := s.dir.ReadDir()
	if err != nil {
		return nil, err
	}
	layers := []Layer{}
	for _, entry := range entries {
		id := "sha256:" + entry.Name()
		if !digestPattern.MatchString(id) {
			continue
		}
		l, err := s.read(id)
		if hosterr.Is(err, hosterr.NotFound) {
			// Removed meanwhile.
			continue
		}
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	return layers, nil
}

// Remove deletes a layer. The caller has made sure that nothing is stacked on it.
func (s *Store) Remove(id string) error {
	if err := CheckDigest("id", id); err != nil {
		return err
	}
	work := s.At(id).WithSuffix(".tmp")
	if err := work.RemoveAll(); err != nil {
		return err
	}
	// First out of sight in one step, then gone: a kill in between leaves no half layer under a trusted name.
	if err := s.At(id).Rename(work); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(s.recordAt(id).Remove(), work.RemoveAll())
}
