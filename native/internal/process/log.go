package process

import (
	"context"
	"sync"
)

// Stream says where output came from.
type Stream uint8

// The two output streams; a terminal's output is all Stdout.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// chunkBytesMax bounds one piece of output: small enough to drop old output evenly, large enough to be cheap.
const chunkBytesMax = 32 << 10

// pieceBytesMax bounds what a reader gets at once: a reader that lags catches up in fewer, larger messages, each of which costs every
// program on its way the same, however large it is.
const pieceBytesMax = 128 << 10

// Log keeps the last bytes a process wrote, addressable by offset. Offsets count both streams together.
//
// Bound: capacity bytes. When it is full the oldest output is dropped, unless a lossless reader still needs it; then the
// writer waits, and with it the process.
type Log struct {
	mu       sync.Mutex
	capacity int
	chunks   []chunk
	size     int
	end      uint64
	finished bool
	changed  chan struct{}
	lossless map[*Reader]struct{}
}

type chunk struct {
	stream Stream
	offset uint64
	bytes  []byte
}

// Piece is what a Reader returns: output, or a gap where output was dropped.
type Piece struct {
	Stream Stream
	Offset uint64
	// Bytes must not be changed.
	Bytes []byte
	// DroppedTo is not zero for a gap from Offset up to it.
	DroppedTo uint64
}

// NewLog makes an empty log; capacity 0 keeps nothing and only counts.
func NewLog(capacity int) *Log {
	return &Log{capacity: capacity, changed: make(chan struct{}), lossless: map[*Reader]struct{}{}}
}

// Append adds output, waiting for lossless readers as needed.
func (l *Log) Append(stream Stream, output []byte) {
	for len(output) > 0 {
		n := min(len(output), chunkBytesMax)
		l.mu.Lock()
		for l.mustWait(n) {
			changed := l.changed
			l.mu.Unlock()
			<-changed
			l.mu.Lock()
		}
		l.add(stream, output[:n])
		l.broadcast()
		l.mu.Unlock()
		output = output[n:]
	}
}

// mustWait says whether n more bytes would drop what a lossless reader has not seen.
func (l *Log) mustWait(n int) bool {
	for reader := range l.lossless {
		// A reader that has seen everything never holds the writer back, however small the capacity.
		if reader.next < l.end && l.end-reader.next+uint64(n) > uint64(l.capacity) {
			return true
		}
	}
	return false
}

func (l *Log) add(stream Stream, output []byte) {
	if l.capacity > 0 {
		last := len(l.chunks) - 1
		// Readers hold slices of earlier bytes only, which appending never changes.
		if last >= 0 && l.chunks[last].stream == stream && len(l.chunks[last].bytes)+len(output) <= chunkBytesMax {
			l.chunks[last].bytes = append(l.chunks[last].bytes, output...)
		} else {
			l.chunks = append(l.chunks, chunk{stream: stream, offset: l.end, bytes: append([]byte(nil), output...)})
		}
		l.size += len(output)
	}
	l.end += uint64(len(output))
	for l.size > l.capacity && len(l.chunks) > 0 && !l.needed(l.chunks[0]) {
		l.size -= len(l.chunks[0].bytes)
		l.chunks[0] = chunk{}
		l.chunks = l.chunks[1:]
	}
}

// needed says whether a lossless reader has not read a chunk to its end; mustWait keeps such chunks within the capacity.
func (l *Log) needed(c chunk) bool {
	for reader := range l.lossless {
		if reader.next < c.offset+uint64(len(c.bytes)) {
			return true
		}
	}
	return false
}

func (l *Log) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Finish ends the log for readers that have seen everything written so far. Output that comes later is still kept.
func (l *Log) Finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.finished {
		l.finished = true
		l.broadcast()
	}
}

// Bounds returns the offsets of the output that is kept: start up to, not including, end.
func (l *Log) Bounds() (start, end uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start(), l.end
}

func (l *Log) start() uint64 {
	if len(l.chunks) == 0 {
		return l.end
	}
	return l.chunks[0].offset
}

// Bytes is how much memory the kept output takes.
func (l *Log) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Reader follows a log from an offset.
type Reader struct {
	log  *Log
	next uint64
}

// Read makes a reader. A lossless reader holds the writer back instead of losing output, until it is closed.
func (l *Log) Read(from uint64, lossless bool) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	reader := &Reader{log: l, next: from}
	if lossless {
		l.lossless[reader] = struct{}{}
	}
	return reader
}

// Close lets the writer go on without this reader.
func (r *Reader) Close() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	delete(r.log.lossless, r)
	r.log.broadcast()
}

// Next returns the next piece, waiting for it; ok is false at the end. Without follow it ends with what is there.
func (r *Reader) Next(ctx context.Context, follow bool) (piece Piece, ok bool, err error) {
	l := r.log
	for {
		l.mu.Lock()
		if r.next < l.start() {
			piece = Piece{Offset: r.next, DroppedTo: l.start()}
			r.next = piece.DroppedTo
			l.mu.Unlock()
			return piece, true, nil
		}
		if r.next < l.end {
			piece = r.take()
			if _, holds := l.lossless[r]; holds {
				l.broadcast()
			}
			l.mu.Unlock()
			return piece, true, nil
		}
		finished, changed := l.finished, l.changed
		l.mu.Unlock()
		if finished || !follow {
			return Piece{}, false, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Piece{}, false, context.Cause(ctx)
		}
	}
}

// take returns the kept output at the reader's offset up to the end of its chunk; a reader that lags gets several at once.
func (r *Reader) take() Piece {
	low, high := 0, len(r.log.chunks)
	for low+1 < high {
		middle := (low + high) / 2
		if r.log.chunks[middle].offset <= r.next {
			low = middle
		} else {
			high = middle
		}
	}
	found := r.log.chunks[low]
	bytes := found.bytes[r.next-found.offset:]
	piece := Piece{Stream: found.stream, Offset: r.next, Bytes: bytes[:len(bytes):len(bytes)]}
	if more := r.log.alike(low+1, found.stream, pieceBytesMax-len(bytes)); len(more) > 0 {
		piece.Bytes = append(make([]byte, 0, pieceBytesMax), bytes...)
		for _, following := range more {
			piece.Bytes = append(piece.Bytes, following.bytes...)
		}
	}
	r.next += uint64(len(piece.Bytes))
	return piece
}

// alike returns the chunks from an index on that are of one stream and fit into a number of bytes.
func (l *Log) alike(from int, stream Stream, bytesMax int) []chunk {
	to := from
	for ; to < len(l.chunks) && l.chunks[to].stream == stream && len(l.chunks[to].bytes) <= bytesMax; to++ {
		bytesMax -= len(l.chunks[to].bytes)
	}
	return l.chunks[min(from, len(l.chunks)):to]
}
