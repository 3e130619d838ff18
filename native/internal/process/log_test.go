package process

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func readAll(t *testing.T, l *Log, from uint64) (text string, dropped uint64) {
	t.Helper()
	reader := l.Read(from, false)
	defer reader.Close()
	var all strings.Builder
	for {
		piece, ok, err := reader.Next(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all.String(), dropped
		}
		if piece.DroppedTo > 0 {
			dropped += piece.DroppedTo - piece.Offset
		}
		all.Write(piece.Bytes)
	}
}

func TestLogReplaysFromAnyOffset(t *testing.T) {
	l := NewLog(1 << 20)
	for _, text := range []string{"abc", "def", "ghi"} {
		l.Append(Stdout, []byte(text))
		l.Append(Stderr, []byte(strings.ToUpper(text)))
	}
	whole := "abcABCdefDEFghiGHI"
	for from := range len(whole) + 1 {
		if got, dropped := readAll(t, l, uint64(from)); got != whole[from:] || dropped != 0 {
			t.Errorf("from %d: %q, %d dropped", from, got, dropped)
		}
	}
}

func TestLogSaysWhatItDropped(t *testing.T) {
	l := NewLog(100_000)
	written := []byte{}
	for i := range 400 {
		piece := bytes.Repeat([]byte{byte('a' + i%26)}, 1000)
		l.Append(Stdout, piece)
		written = append(written, piece...)
	}
	got, dropped := readAll(t, l, 0)
	if dropped == 0 || len(got)+int(dropped) != len(written) || got != string(written[dropped:]) {
		t.Fatalf("%d kept, %d dropped of %d", len(got), dropped, len(written))
	}
	if l.Bytes() > 100_000 {
		t.Fatalf("%d bytes are kept", l.Bytes())
	}
}

func TestLogWithoutCapacityCounts(t *testing.T) {
	l := NewLog(0)
	l.Append(Stdout, []byte("12345"))
	if start, end := l.Bounds(); start != 5 || end != 5 || l.Bytes() != 0 {
		t.Fatalf("bounds %d %d", start, end)
	}
}

func TestLosslessReaderHoldsTheWriterBack(t *testing.T) {
	const total = 4 << 20
	l := NewLog(64 << 10)
	reader := l.Read(0, true)
	go func() {
		for range total / 1024 {
			l.Append(Stdout, make([]byte, 1024))
		}
		l.Finish()
	}()
	seen := 0
	for {
		piece, ok, err := reader.Next(t.Context(), true)
		if err != nil || piece.DroppedTo > 0 {
			t.Fatalf("lost output: %+v %v", piece, err)
		}
		if !ok {
			break
		}
		if seen += len(piece.Bytes); seen%(1<<20) < 1024 {
			time.Sleep(time.Millisecond)
		}
	}
	if seen != total {
		t.Fatalf("saw %d of %d", seen, total)
	}
}

func TestClosedReaderLetsTheWriterGo(t *testing.T) {
	l := NewLog(64 << 10)
	reader := l.Read(0, true)
	done := make(chan struct{})
	go func() { l.Append(Stdout, make([]byte, 1<<20)); close(done) }()
	select {
	case <-done:
		t.Fatal("the writer did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	reader.Close()
	<-done
}

func TestReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := NewLog(1).Read(0, false).Next(ctx, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestLogGivesAReaderThatLagsSeveralChunksAtOnce(t *testing.T) {
	l := NewLog(1 << 20)
	block := bytes.Repeat([]byte("0123456789abcdef"), chunkBytesMax/16)
	for range 6 {
		l.Append(Stdout, block)
	}
	l.Append(Stderr, []byte("e"))
	l.Append(Stdout, []byte("o"))
	reader := l.Read(10, false)
	defer reader.Close()
	var sizes []int
	var all []byte
	for {
		piece, ok, err := reader.Next(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		sizes, all = append(sizes, len(piece.Bytes)), append(all, piece.Bytes...)
	}
	whole := append(bytes.Repeat(block, 6), "eo"...)
	if !bytes.Equal(all, whole[10:]) || len(sizes) != 4 || sizes[0] != pieceBytesMax-10 || sizes[2] != 1 {
		t.Fatalf("%d bytes in pieces of %v", len(all), sizes)
	}
}
