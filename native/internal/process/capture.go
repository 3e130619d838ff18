package process

import "sync"

// captureChunkBytesMax bounds one chunk of captured output. Chunks grow up to it, so that little output takes little memory and much
// output is never copied to make room for more.
const captureChunkBytesMax = 256 << 10

// capture keeps the head of a stream and counts the rest.
type capture struct {
	mu      sync.Mutex
	chunks  [][]byte
	size    int
	dropped uint64
}

func (c *capture) add(output []byte, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := output[:min(limit-c.size, len(output))]
	c.dropped += uint64(len(output) - len(kept))
	if last := len(c.chunks) - 1; last >= 0 {
		fits := min(len(kept), cap(c.chunks[last])-len(c.chunks[last]))
		c.chunks[last] = append(c.chunks[last], kept[:fits]...)
		kept, c.size = kept[fits:], c.size+fits
	}
	if len(kept) > 0 {
		chunk := make([]byte, 0, max(len(kept), min(c.size, captureChunkBytesMax)))
		c.chunks = append(c.chunks, append(chunk, kept...))
		c.size += len(kept)
	}
}

// take returns the head in one piece, and how many bytes did not fit.
func (c *capture) take() ([]byte, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.chunks) == 0 {
		return nil, c.dropped
	}
	if len(c.chunks) > 1 {
		whole := make([]byte, 0, c.size)
		for _, chunk := range c.chunks {
			whole = append(whole, chunk...)
		}
		c.chunks = [][]byte{whole}
	}
	head := c.chunks[0]
	return head[:len(head):len(head)], c.dropped
}
