package process

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
)

func TestCaptureKeepsTheHeadOfWhateverPiecesCome(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var c capture
		var all []byte
		limit := random.IntN(1 << 20)
		for range random.IntN(60) {
			piece := make([]byte, random.IntN(chunkBytesMax))
			for i := range piece {
				piece[i] = byte(len(all) + i)
			}
			all = append(all, piece...)
			c.add(piece, limit)
			if random.IntN(20) == 0 {
				// An early read finds the head so far, and later reads find the same head.
				head, _ := c.take()
				defer func(before []byte) {
					if !bytes.Equal(head, before) {
						t.Error("a head that was taken changed")
					}
				}(bytes.Clone(head))
			}
		}
		head, dropped := c.take()
		if want := all[:min(limit, len(all))]; !bytes.Equal(head, want) || dropped != uint64(len(all)-len(want)) {
			t.Fatalf("%d bytes and %d dropped, want %d of %d", len(head), dropped, len(want), len(all))
		}
	}
}

// Output that does not fit into the last chunk must not move what is there: 4 MiB would be copied over and over.
func TestCaptureAllocatesLittleMoreThanItKeeps(t *testing.T) {
	piece, total := make([]byte, chunkBytesMax), 4<<20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var c capture
	for n := 0; n < total; n += len(piece) {
		c.add(piece, total)
	}
	c.take()
	runtime.ReadMemStats(&after)
	// Once in chunks, once in one piece, and the first chunks and the list of them.
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > uint64(total)*9/4 {
		t.Errorf("%d bytes are allocated to keep %d", allocated, total)
	}
}
