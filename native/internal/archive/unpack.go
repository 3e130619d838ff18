package archive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// zeroBlock is what a file system keeps as a hole at the least.
const zeroBlock = 4096

// unpacking is the record of an archive on its way back: which part is next, and the number of its first chunk.
type unpacking struct {
	ID    string `json:"id"`
	Part  int    `json:"part"`
	Chunk int64  `json:"chunk"`
}

func (s *Store) unpackingRecord(id string) confine.Entry { return s.dir.In("unpacking", id+".json") }

func (s *Store) unpackingDir(id string) confine.Entry { return s.dir.In("unpacking", id) }

func (s *Store) unpacked(id string, file int) confine.Entry {
	return s.unpackingDir(id).In(strconv.Itoa(file))
}

// Place puts unpacked files where they belong. It may be called again after a kill, with the same files.
type Place func(files []confine.Entry) error

// Unpacking is an archive to bring back: its entry in the store, and the labels that its files must have.
type Unpacking struct {
	ID     string
	Sealed []byte
	Labels []string
}

// Next is the part that Unpack takes next, and whether there is none and only the places are missing. The first call makes the files, empty, where the disk has room for all of their content.
func (s *Store) Next(u Unpacking) (part int, isWhole bool, err error) {
	index, _, err := s.openFor(u)
	if err != nil {
		return 0, false, err
	}
	var at unpacking
	err = readRecord(s.unpackingRecord(u.ID), &at)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return at.Part, at.Part == len(index.Parts), err
	}
	return 0, false, s.beginUnpacking(u.ID, index)
}

func (s *Store) openFor(u Unpacking) (Index, []byte, error) {
	if err := instance.CheckID("id", u.ID); err != nil {
		return Index{}, nil, err
	}
	_, dataKey, index, err := s.keys.open(u.ID, u.Sealed)
	if err != nil {
		return index, nil, err
	}
	var labels []string
	for _, content := range index.Contents {
		labels = append(labels, content.Label)
	}
	if !slices.Equal(labels, u.Labels) {
		return index, nil, hosterr.New(hosterr.InvalidArgument, "files: archive %s has %q, not %q", u.ID, labels, u.Labels)
	}
	return index, dataKey, nil
}

func (s *Store) beginUnpacking(id string, index Index) error {
	var total int64
	for _, part := range index.Parts {
		total += part.ContentBytes
	}
	if err := s.room(total); err != nil {
		return err
	}
	dir := s.unpackingDir(id)
	if err := dir.RemoveAll(); err != nil {
		return err
	}
	if err := dir.Mkdir(0o700); err != nil {
		return err
	}
	for i, content := range index.Contents {
		f, err := s.unpacked(id, i).Open(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Truncate(content.SizeBytes), f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	return durable.Write(s.unpackingRecord(id), &unpacking{ID: id})
}

// Unpack takes one part, a file of the node's. Everything in it is compared with what was written before any of it gets to a file, and no file has its place before the last part
// is in. It says which part is next; after the last one, none.
func (s *Store) Unpack(ctx context.Context, u Unpacking, part int, from string, place Place) (next int, isDone bool, err error) {
	var file *os.File
	if from != "" {
		if file, err = s.node.OpenFile("from", from, unix.O_RDONLY, 0); err != nil {
			return 0, false, err
		}
		defer file.Close()
	}
	index, dataKey, err := s.openFor(u)
	if err != nil {
		return 0, false, err
	}
	var at unpacking
	if err := readRecord(s.unpackingRecord(u.ID), &at); errors.Is(err, os.ErrNotExist) {
		return 0, false, hosterr.New(hosterr.NotFound, "archive %s is not being unpacked: ask for its next part first", u.ID)
	} else if err != nil {
		return 0, false, err
	}
	if part != at.Part || part > len(index.Parts) {
		return 0, false, hosterr.New(hosterr.InvalidArgument, "part: %d is not the next one, which is %d", part, at.Part)
	}
	if part < len(index.Parts) {
		if file == nil {
			return 0, false, hosterr.New(hosterr.InvalidArgument, "from: is missing")
		}
		if err := s.unpackPart(ctx, u.ID, index, at, dataKey, file); err != nil {
			return 0, false, err
		}
		at.Part++
		at.Chunk += index.Parts[part].Chunks
		if err := durable.Write(s.unpackingRecord(u.ID), &at); err != nil {
			return 0, false, err
		}
	}
	if at.Part < len(index.Parts) {
		return at.Part, false, nil
	}
	files := []confine.Entry{}
	for i := range index.Contents {
		files = append(files, s.unpacked(u.ID, i))
	}
	if err := place(files); err != nil {
		return 0, false, err
	}
	return at.Part, true, errors.Join(s.unpackingRecord(u.ID).Remove(), s.unpackingDir(u.ID).RemoveAll())
}

func (s *Store) unpackPart(ctx context.Context, id string, index Index, at unpacking, dataKey []byte, f *os.File) (err error) {
	by, err := newSealer(dataKey, "content")
	if err != nil {
		return err
	}
	expected := index.Parts[at.Part]
	if err := s.room(expected.ContentBytes); err != nil {
		return err
	}
	if info, err := f.Stat(); err != nil || info.Size() != expected.SizeBytes {
		return errors.Join(err, damaged("archive %s: part %d is not of %d bytes", id, at.Part, expected.SizeBytes))
	}
	w := writer{files: make([]*os.File, len(index.Contents)), contents: index.Contents, open: func(i int) (*os.File, error) { return s.unpacked(id, i).Open(unix.O_WRONLY, 0) }}
	defer func() { err = errors.Join(err, w.close()) }()
	in := bufio.NewReaderSize(f, 1<<20)
	for done := int64(0); done < expected.Chunks; {
		if err := ctx.Err(); err != nil {
			return err
		}
		frames, err := readFrames(in, expected.Chunks-done)
		if err != nil {
			return damaged("archive %s: part %d: %v", id, at.Part, err)
		}
		decoded, err := decodeAll(frames, by, func(i int) []byte {
			number := done + int64(i)
			return aboutChunk(id, at.Chunk+number, expected.Last && number == expected.Chunks-1)
		})
		if err != nil {
			return damaged("archive %s: part %d: %v", id, at.Part, err)
		}
		for _, d := range decoded {
			if err := w.write(d); err != nil {
				return err
			}
		}
		done += int64(len(frames))
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return damaged("archive %s: part %d is longer than its chunks", id, at.Part)
	}
	return nil
}

func readFrames(in io.Reader, most int64) ([][]byte, error) {
	var frames [][]byte
	for range min(int64(runtime.NumCPU()), most) {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err != nil {
			return nil, err
		}
		if length > frameMax {
			return nil, fmt.Errorf("a chunk of %d bytes", length)
		}
		frame := make([]byte, length)
		if _, err := io.ReadFull(in, frame); err != nil {
			return nil, err
		}
		frames = append(frames, frame)
	}
	return frames, nil
}

type decodedChunk struct {
	pieces   []piece
	contents [][]byte
}

func decodeAll(frames [][]byte, by *sealer, about func(i int) []byte) ([]decodedChunk, error) {
	chunks, failures := make([]decodedChunk, len(frames)), make([]error, len(frames))
	var workers sync.WaitGroup
	for i, frame := range frames {
		workers.Go(func() {
			c := &chunks[i]
			c.pieces, c.contents, failures[i] = decode(frame, by, about(i))
		})
	}
	workers.Wait()
	return chunks, errors.Join(failures...)
}

// writer opens the files that a part has content of, and brings them to the disk.
type writer struct {
	files    []*os.File
	contents []Content
	open     func(i int) (*os.File, error)
}

func (w *writer) write(c decodedChunk) error {
	for i, p := range c.pieces {
		if p.file >= len(w.files) || p.offset > w.contents[p.file].SizeBytes-int64(p.length) {
			return damaged("a chunk has content beyond the end of file %d", p.file)
		}
		if w.files[p.file] == nil {
			f, err := w.open(p.file)
			if err != nil {
				return err
			}
			w.files[p.file] = f
		}
		if err := writeSparse(w.files[p.file], c.contents[i], p.offset); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) close() (err error) {
	for _, f := range w.files {
		if f != nil {
			err = errors.Join(err, f.Sync(), f.Close())
		}
	}
	return err
}

var zeros = make([]byte, zeroBlock)

// writeSparse leaves holes where there are whole blocks of zeros.
func writeSparse(f *os.File, content []byte, offset int64) error {
	for start := 0; start < len(content); {
		end, isZero := run(content, start)
		if !isZero {
			if _, err := f.WriteAt(content[start:end], offset+int64(start)); err != nil {
				return err
			}
		}
		start = end
	}
	return nil
}

// run is how far the blocks go on that are zeros, or that are not, as the one at start is.
func run(content []byte, start int) (end int, isZero bool) {
	isZeroAt := func(at int) bool {
		block := content[at:min(at+zeroBlock, len(content))]
		return bytes.Equal(block, zeros[:len(block)])
	}
	isZero = isZeroAt(start)
	end = min(start+zeroBlock, len(content))
	for end < len(content) && isZeroAt(end) == isZero {
		end = min(end+zeroBlock, len(content))
	}
	return end, isZero
}

func syncDir(name confine.Entry) error {
	dir, err := name.OpenDir()
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
