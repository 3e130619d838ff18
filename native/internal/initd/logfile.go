package initd

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/process"
)

// LogName is the current log; older ones are LogName.1 (the newest) and so on.
const LogName = "container.log"

// lineBytesMax is where a long line is cut into pieces marked P, as container runtimes do.
const lineBytesMax = 16 << 10

// timestampLayout always has nine digits, so that lines sort as text.
const timestampLayout = "2006-01-02T15:04:05.000000000Z07:00"

// LogFile writes lines as container runtimes do: time, stream, F or P (the line goes on), text.
//
// Bound: filesMax files of about bytesMax each. What cannot be written, because the disk is full, is dropped: a
// workload must not stand still for its log.
type LogFile struct {
	directory string
	bytesMax  int64
	filesMax  int
	now       func() time.Time

	mu      sync.Mutex
	file    *os.File
	size    int64
	partial [2][]byte
	batch   bytes.Buffer
	closed  bool
}

// OpenLogFile continues the log in a directory, which is made if needed.
func OpenLogFile(directory string, bytesMax int64, filesMax int, now func() time.Time) (*LogFile, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	l := &LogFile{directory: directory, bytesMax: bytesMax, filesMax: filesMax, now: now}
	return l, l.open()
}

func (l *LogFile) open() error {
	file, err := os.OpenFile(l.name(0), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	l.file, l.size = file, info.Size()
	return nil
}

func (l *LogFile) name(age int) string {
	name := filepath.Join(l.directory, LogName)
	if age > 0 {
		name += "." + strconv.Itoa(age)
	}
	return name
}

// Write adds output; a line without its end is kept until the rest comes.
func (l *LogFile) Write(stream process.Stream, output []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stamp := l.now().UTC().Format(timestampLayout)
	pending := &l.partial[stream-1]
	for len(output) > 0 {
		end := bytes.IndexByte(output, '\n')
		room := lineBytesMax - len(*pending)
		switch {
		case end >= 0 && end <= room:
			l.line(stamp, stream, "F", *pending, output[:end])
			output = output[end+1:]
			*pending = (*pending)[:0]
		case len(output) >= room:
			l.line(stamp, stream, "P", *pending, output[:room])
			output = output[room:]
			*pending = (*pending)[:0]
		default:
			*pending = append(*pending, output...)
			output = nil
		}
	}
	l.flush()
}

// WriteLines adds whole lines.
func (l *LogFile) WriteLines(stream process.Stream, lines []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stamp := l.now().UTC().Format(timestampLayout)
	for line := range bytes.Lines(lines) {
		l.line(stamp, stream, "F", bytes.TrimSuffix(line, []byte("\n")))
	}
	l.flush()
}

func (l *LogFile) line(stamp string, stream process.Stream, tag string, parts ...[]byte) {
	l.batch.WriteString(stamp)
	if stream == process.Stderr {
		l.batch.WriteString(" stderr ")
	} else {
		l.batch.WriteString(" stdout ")
	}
	l.batch.WriteString(tag + " ")
	for _, part := range parts {
		l.batch.Write(part)
	}
	l.batch.WriteByte('\n')
}

// flush writes the batch, in a fresh file if the current one is full.
func (l *LogFile) flush() {
	if l.batch.Len() == 0 {
		return
	}
	if !l.closed && l.size > 0 && l.size+int64(l.batch.Len()) > l.bytesMax {
		l.rotate()
	}
	if l.file != nil {
		n, _ := l.file.Write(l.batch.Bytes())
		l.size += int64(n)
	}
	l.batch.Reset()
}

func (l *LogFile) rotate() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
	for age := l.filesMax - 1; age > 0; age-- {
		os.Rename(l.name(age-1), l.name(age))
	}
	if l.filesMax == 1 {
		os.Remove(l.name(0))
	}
	if l.open() != nil {
		l.size = 0
	}
}

// Close writes what is left of unfinished lines.
func (l *LogFile) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	stamp := l.now().UTC().Format(timestampLayout)
	for _, stream := range []process.Stream{process.Stdout, process.Stderr} {
		if pending := l.partial[stream-1]; len(pending) > 0 {
			l.line(stamp, stream, "P", pending)
			l.partial[stream-1] = nil
		}
	}
	l.flush()
	l.closed = true
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
