package archive

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// packing is the record of an archive on its way out. The key in it is in the clear: the directory is root's, as are the files that it encrypts.
type packing struct {
	ID       string    `json:"id"`
	DataKey  []byte    `json:"dataKey"`
	Contents []Content `json:"contents"`
	Parts    []Part    `json:"parts"`
	// Ends has for each part where the next one begins.
	Ends []cursor `json:"ends"`
}

func (p packing) isWhole() bool { return len(p.Parts) > 0 && p.Parts[len(p.Parts)-1].Last }

func (s *Store) packingRecord(id string) confine.Entry { return s.dir.In("packing", id+".json") }

func (s *Store) readPacking(id string) (packing, error) {
	var p packing
	if err := instance.CheckID("id", id); err != nil {
		return p, err
	}
	err := readRecord(s.packingRecord(id), &p)
	if errors.Is(err, os.ErrNotExist) {
		return p, hosterr.New(hosterr.NotFound, "archive %s is not being packed", id)
	}
	return p, err
}

// Packed is what is known of a part that was packed before; false where it was not.
func (s *Store) Packed(id string, part int) (Part, bool, error) {
	p, err := s.readPacking(id)
	if hosterr.Is(err, hosterr.NotFound) {
		return Part{}, false, nil
	}
	if err != nil || part < 0 || part >= len(p.Parts) {
		return Part{}, false, err
	}
	return p.Parts[part], true, nil
}

// Pack writes one part to a file of the node's. Parts are packed in their order; one that was packed before is written again, with the same bytes.
func (s *Store) Pack(ctx context.Context, id string, part int, to string, items []Item) (Part, error) {
	p, err := s.beginPacking(id, items)
	if err != nil {
		return Part{}, err
	}
	if part < 0 || part > len(p.Parts) || (part == len(p.Parts) && p.isWhole()) {
		return Part{}, hosterr.New(hosterr.InvalidArgument, "part: %d is not one of the %d that are packed, nor the next one", part, len(p.Parts))
	}
	if err := s.room(s.partBytes); err != nil {
		return Part{}, err
	}
	r := &reader{items: items}
	if part > 0 {
		r.at = p.Ends[part-1]
	}
	made, err := s.writePart(ctx, p, r, to)
	if err != nil {
		return Part{}, err
	}
	if part < len(p.Parts) {
		if made != p.Parts[part] {
			return Part{}, hosterr.New(hosterr.Busy, "archive %s: part %d is not what it was when it was packed before: begin it anew under another id", id, part)
		}
		return made, nil
	}
	p.Parts, p.Ends = append(p.Parts, made), append(p.Ends, r.at)
	return made, durable.Write(s.packingRecord(id), &p)
}

func (s *Store) beginPacking(id string, items []Item) (packing, error) {
	contents := []Content{}
	for _, item := range items {
		contents = append(contents, Content{Label: item.Label, SizeBytes: item.SizeBytes})
	}
	p, err := s.readPacking(id)
	if err == nil && !slices.Equal(p.Contents, contents) {
		return p, hosterr.New(hosterr.AlreadyExists, "archive %s is of other files than these", id)
	}
	if !hosterr.Is(err, hosterr.NotFound) {
		return p, err
	}
	p = packing{ID: id, DataKey: make([]byte, keyBytes), Contents: contents}
	_, _ = rand.Read(p.DataKey)
	return p, durable.Write(s.packingRecord(id), &p)
}

func (s *Store) writePart(ctx context.Context, p packing, r *reader, to string) (made Part, err error) {
	by, err := newSealer(p.DataKey, "content")
	if err != nil {
		return made, err
	}
	f, err := s.node.OpenFile("to", to, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	out := io.MultiWriter(f, sum)
	for made.ContentBytes < s.partBytes && !made.Last {
		if err := ctx.Err(); err != nil {
			return made, err
		}
		chunks, err := readSome(r, s.partBytes-made.ContentBytes)
		if err != nil {
			return made, err
		}
		frames, err := encodeAll(r.items, chunks, by, p.ID)
		if err != nil {
			return made, err
		}
		for i, frame := range frames {
			if _, err := out.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
				return made, fmt.Errorf("%s: %w", to, err)
			}
			made.SizeBytes += int64(4 + len(frame))
			made.ContentBytes += chunks[i].contentBytes()
			made.Chunks++
			made.Last = chunks[i].isLast
		}
	}
	made.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return made, f.Sync()
}

// readSome is one chunk for each processor, or up to the last one, or as many as fill the part.
func readSome(r *reader, roomBytes int64) ([]chunk, error) {
	var chunks []chunk
	for range runtime.NumCPU() {
		c, err := r.next()
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, c)
		if roomBytes -= c.contentBytes(); c.isLast || roomBytes <= 0 {
			break
		}
	}
	return chunks, nil
}

func encodeAll(items []Item, chunks []chunk, by *sealer, archive string) ([][]byte, error) {
	frames, failures := make([][]byte, len(chunks)), make([]error, len(chunks))
	var workers sync.WaitGroup
	for i, c := range chunks {
		workers.Go(func() { frames[i], failures[i] = encode(items, c, by, archive) })
	}
	workers.Wait()
	return frames, errors.Join(failures...)
}
