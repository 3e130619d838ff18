package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// chunkBytes is how much content is compressed and encrypted at once: enough for zstd to find what repeats, few enough to hold one for every processor.
const chunkBytes = 4 << 20

// gapMin joins pieces: a hole that is smaller is read as the zeros that it is, and left out again where it is unpacked.
const gapMin = 64 << 10

// piecesMax bounds the list of a chunk; files in smaller pieces make more chunks.
const piecesMax = 4096

// pieceHead is the length of a piece's place in a chunk: file, offset and length.
const pieceHead = 4 + 8 + 4

// frameMax is the longest chunk as it is stored, with room for what zstd cannot make smaller.
const frameMax = chunkBytes + piecesMax*pieceHead + 1<<16

// cursor is how far the content of all files has been read.
type cursor struct {
	File   int   `json:"file"`
	Offset int64 `json:"offset"`
	Chunk  int64 `json:"chunk"`
}

type piece struct {
	file   int
	offset int64
	length int
}

// chunk is one of the stream's pieces of content, not yet read.
type chunk struct {
	number int64
	isLast bool
	pieces []piece
}

func (c chunk) contentBytes() (total int64) {
	for _, p := range c.pieces {
		total += int64(p.length)
	}
	return total
}

// reader goes through the content of files in one order, holes left out.
type reader struct {
	items []Item
	at    cursor
}

// next is the chunk at the cursor, which it moves on. Whether it is the last follows from what comes after it, so that a stream that was cut has none.
func (r *reader) next() (chunk, error) {
	c := chunk{number: r.at.Chunk}
	r.at.Chunk++
	for room := int64(chunkBytes); room > 0 && len(c.pieces) < piecesMax; {
		start, end, err := r.seek()
		if err != nil {
			return c, err
		}
		if start == end {
			break
		}
		length := min(end-start, room)
		room -= length
		r.at.Offset = start + length
		if last := len(c.pieces) - 1; last >= 0 && c.pieces[last].file == r.at.File && c.pieces[last].offset+int64(c.pieces[last].length) == start {
			c.pieces[last].length += int(length)
			continue
		}
		c.pieces = append(c.pieces, piece{file: r.at.File, offset: start, length: int(length)})
	}
	start, end, err := r.seek()
	c.isLast = start == end
	return c, err
}

// seek finds the next content at or after the cursor; none: start and end are the same.
func (r *reader) seek() (start, end int64, err error) {
	for r.at.File < len(r.items) {
		item := r.items[r.at.File]
		start, err := item.File.Seek(r.at.Offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || (err == nil && start >= item.SizeBytes) {
			r.at.File, r.at.Offset = r.at.File+1, 0
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		end, err := extentEnd(item.File, start, item.SizeBytes)
		return start, end, err
	}
	return 0, 0, nil
}

func extentEnd(f *os.File, start, size int64) (int64, error) {
	for at := start; ; {
		end, err := f.Seek(at, unix.SEEK_HOLE)
		if err != nil {
			return 0, err
		}
		if end >= size || end-start >= chunkBytes {
			return min(end, size), nil
		}
		next, err := f.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || (err == nil && next-end >= gapMin) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		at = next
	}
}

// encode reads a chunk, compresses and encrypts it.
func encode(items []Item, c chunk, by *sealer, archive string) ([]byte, error) {
	plain := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(c.pieces)*pieceHead+int(c.contentBytes())), uint32(len(c.pieces)))
	for _, p := range c.pieces {
		plain = binary.BigEndian.AppendUint32(plain, uint32(p.file))
		plain = binary.BigEndian.AppendUint64(plain, uint64(p.offset))
		plain = binary.BigEndian.AppendUint32(plain, uint32(p.length))
	}
	for _, p := range c.pieces {
		start := len(plain)
		plain = plain[:start+p.length]
		if _, err := items[p.file].File.ReadAt(plain[start:], p.offset); err != nil {
			return nil, fmt.Errorf("%s: %w", items[p.file].Label, err)
		}
	}
	return by.seal(compress(plain), aboutChunk(archive, c.number, c.isLast)), nil
}

// One encoder and one decoder serve all chunks: each call of EncodeAll and DecodeAll takes a state of its own.
var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(64<<20))
)

func compress(plain []byte) []byte { return encoder.EncodeAll(plain, make([]byte, 0, len(plain)/2)) }

func decompress(packed []byte) ([]byte, error) { return decoder.DecodeAll(packed, nil) }

// decode is the pieces of a chunk with their content. It believes no number: each is compared with what is there.
func decode(sealed []byte, by *sealer, about []byte) ([]piece, [][]byte, error) {
	packed, err := by.open(sealed, about)
	if err != nil {
		return nil, nil, err
	}
	plain, err := decompress(packed)
	if err != nil {
		return nil, nil, err
	}
	if len(plain) < 4 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	count := int(binary.BigEndian.Uint32(plain))
	if count > piecesMax || len(plain) < 4+count*pieceHead {
		return nil, nil, io.ErrUnexpectedEOF
	}
	head, content := plain[4:4+count*pieceHead], plain[4+count*pieceHead:]
	pieces, contents := make([]piece, count), make([][]byte, count)
	for i := range count {
		at := head[i*pieceHead:]
		p := piece{file: int(binary.BigEndian.Uint32(at)), offset: int64(binary.BigEndian.Uint64(at[4:])), length: int(binary.BigEndian.Uint32(at[12:]))}
		if p.length > len(content) || p.offset < 0 {
			return nil, nil, io.ErrUnexpectedEOF
		}
		pieces[i], contents[i], content = p, content[:p.length], content[p.length:]
	}
	if len(content) != 0 {
		return nil, nil, errors.New("a chunk is longer than its pieces")
	}
	return pieces, contents, nil
}
