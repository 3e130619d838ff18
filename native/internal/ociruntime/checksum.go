package ociruntime

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"sync"
)

// pieceBytes is how much of a file has one checksum: enough pieces for every processor, few enough to fit into a record.
const pieceBytes = 64 << 20

// readBytes is what is read at once; more was not faster where it was measured.
const readBytes = 1 << 20

// castagnoli has an instruction on every processor that runsc runs on. It finds what a disk damages; the directory is root's, so nobody forges it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumsOf reads a whole file, on all processors at once, and returns the checksum of each piece.
func sumsOf(f *os.File, size int64) ([]uint32, error) {
	sums := make([]uint32, (size+pieceBytes-1)/pieceBytes)
	failures := make([]error, len(sums))
	next := make(chan int)
	var readers sync.WaitGroup
	for range min(runtime.NumCPU(), len(sums)) {
		readers.Go(func() {
			buffer := make([]byte, readBytes)
			for i := range next {
				start := int64(i) * pieceBytes
				sums[i], failures[i] = sumOf(io.NewSectionReader(f, start, min(pieceBytes, size-start)), buffer)
			}
		})
	}
	for i := range sums {
		next <- i
	}
	close(next)
	readers.Wait()
	return sums, errors.Join(failures...)
}

func sumOf(piece *io.SectionReader, buffer []byte) (uint32, error) {
	var sum uint32
	var done int64
	for {
		n, err := piece.Read(buffer)
		sum = crc32.Update(sum, castagnoli, buffer[:n])
		done += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if done != piece.Size() {
		return 0, fmt.Errorf("%d bytes of %d are there", done, piece.Size())
	}
	return sum, nil
}
