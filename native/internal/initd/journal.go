package initd

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/process"
)

// labelBytesMax bounds what stands before a line of a process.
const labelBytesMax = 64

// Journal is the sandbox's log: the entrypoint's output, and that of processes whose starter asked for it. It is opened when something is
// written first.
//
// Bound: that of LogFile, for all sources together, and one unfinished line per source and stream.
type Journal struct {
	directory string
	bytesMax  int64
	filesMax  int

	open sync.Once
	file *LogFile
}

// NewJournal makes a journal in a directory; without one it is our own standard streams.
func NewJournal(directory string, bytesMax int64, filesMax int) *Journal {
	return &Journal{directory: directory, bytesMax: bytesMax, filesMax: filesMax}
}

// logFile is nil where the journal is our own streams, or cannot be written.
func (j *Journal) logFile() *LogFile {
	j.open.Do(func() {
		if j.directory == "" {
			return
		}
		file, err := OpenLogFile(j.directory, j.bytesMax, j.filesMax, time.Now)
		if err != nil {
			slog.Error("log cannot be written", "error", err)
			return
		}
		j.file = file
	})
	return j.file
}

// Entrypoint adds output of the container's own process.
func (j *Journal) Entrypoint(stream process.Stream, output []byte) {
	if file := j.logFile(); file != nil {
		file.Write(stream, output)
		return
	}
	mirror(stream, output)
}

// Close writes what is left of the entrypoint's last line. What comes later is dropped.
func (j *Journal) Close() {
	if file := j.logFile(); file != nil {
		file.Close()
	}
}

// Source is one process's way into the journal: each of its lines begins with its label.
type Source struct {
	journal *Journal
	prefix  []byte

	mu      sync.Mutex
	partial [2][]byte
}

// Source makes one; what could be taken for the label's end, or obeyed by a terminal, is replaced in it.
func (j *Journal) Source(label string) *Source {
	label = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == ']' {
			return '_'
		}
		return r
	}, label)
	return &Source{journal: j, prefix: []byte("[" + label[:min(len(label), labelBytesMax)] + "] ")}
}

// Write adds output. A line that is longer than a log's is cut into several, so that those of other processes may stand between them.
func (s *Source) Write(stream process.Stream, output []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := &s.partial[stream-1]
	var lines []byte
	for len(output) > 0 {
		end, room := bytes.IndexByte(output, '\n'), lineBytesMax-len(s.prefix)-len(*pending)
		taken, skipped := end, 1
		if end < 0 || end > room {
			taken, skipped = min(len(output), room), 0
		}
		*pending = append(*pending, output[:taken]...)
		output = output[taken+skipped:]
		if skipped == 0 && taken < room {
			break
		}
		lines = s.finish(lines, pending)
	}
	s.put(stream, lines)
}

// Flush writes unfinished lines.
func (s *Source) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range []process.Stream{process.Stdout, process.Stderr} {
		if pending := &s.partial[stream-1]; len(*pending) > 0 {
			s.put(stream, s.finish(nil, pending))
		}
	}
}

func (s *Source) finish(lines []byte, pending *[]byte) []byte {
	lines = append(append(append(lines, s.prefix...), *pending...), '\n')
	*pending = (*pending)[:0]
	return lines
}

func (s *Source) put(stream process.Stream, lines []byte) {
	if len(lines) == 0 {
		return
	}
	if file := s.journal.logFile(); file != nil {
		file.WriteLines(stream, lines)
		return
	}
	mirror(stream, lines)
}
