// Package sparse writes a file and where its holes are, as GNU tar has it inside an archive (version 1.0 of its sparse format).
package sparse

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// block is the unit of a tar archive.
const block = 512

// gapMin bounds the list: a hole that is smaller is written as the zeros that it reads as.
const gapMin = 64 << 10

type extent struct{ at, size int64 }

// Image is a file about to be written.
type Image struct {
	file    *os.File
	size    int64
	extents []extent
	header  []byte
}

// Open looks for the holes of a file.
func Open(file *os.File) (*Image, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	extents, err := extentsOf(file, info.Size())
	if err != nil {
		return nil, err
	}
	return &Image{file: file, size: info.Size(), extents: extents, header: headerOf(extents)}, nil
}

func extentsOf(file *os.File, size int64) ([]extent, error) {
	var found []extent
	for at := int64(0); at < size; {
		start, err := file.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, err
		}
		if at, err = file.Seek(start, unix.SEEK_HOLE); err != nil {
			return nil, err
		}
		if last := len(found) - 1; last >= 0 && start-(found[last].at+found[last].size) < gapMin {
			found[last].size = at - found[last].at
		} else {
			found = append(found, extent{at: start, size: at - start})
		}
	}
	// An empty piece at the end tells where a file ends that ends in a hole.
	return append(found, extent{at: size}), nil
}

// headerOf is how many pieces there are, then place and length of each, a number a line, padded to whole blocks.
func headerOf(extents []extent) []byte {
	text := append(strconv.AppendInt(nil, int64(len(extents)), 10), '\n')
	for _, piece := range extents {
		text = append(strconv.AppendInt(text, piece.at, 10), '\n')
		text = append(strconv.AppendInt(text, piece.size, 10), '\n')
	}
	return append(text, make([]byte, (block-len(text)%block)%block)...)
}

// SizeBytes is the file's own size, holes included.
func (i *Image) SizeBytes() int64 { return i.size }

// EncodedBytes is how much WriteTo writes.
func (i *Image) EncodedBytes() int64 {
	total := int64(len(i.header))
	for _, piece := range i.extents {
		total += piece.size
	}
	return total
}

// WriteTo writes the list and then the pieces.
func (i *Image) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(i.header)
	total := int64(n)
	for _, piece := range i.extents {
		if err != nil {
			break
		}
		var copied int64
		copied, err = io.Copy(w, io.NewSectionReader(i.file, piece.at, piece.size))
		total += copied
		if err == nil && copied != piece.size {
			err = io.ErrUnexpectedEOF
		}
	}
	return total, err
}
