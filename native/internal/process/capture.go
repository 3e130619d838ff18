package process

import "sync"

// capture keeps the head of a stream and counts the rest.
type capture struct {
	mu      sync.Mutex
	head    []byte
	dropped uint64
}

func (c *capture) add(output []byte, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	room := min(limit-len(c.head), len(output))
	c.head = append(c.head, output[:room]...)
	c.dropped += uint64(len(output) - room)
}

func (c *capture) take() ([]byte, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head[:len(c.head):len(c.head)], c.dropped
}
