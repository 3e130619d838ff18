package initd

import (
	"os"
	"strings"
	"testing"

	"agent-sandbox.dev/native/internal/process"
)

func texts(t *testing.T, directory string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(directory + "/" + LogName)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !logLine.MatchString(line) {
			t.Errorf("line %q", line)
		}
		lines = append(lines, strings.TrimSuffix(line[31:], "\n"))
	}
	return lines
}

func TestJournalTellsSourcesApart(t *testing.T) {
	directory := t.TempDir()
	journal := NewJournal(directory, 1<<20, 2)
	web, odd := journal.Source("web"), journal.Source("a]\x1b b")
	journal.Entrypoint(process.Stdout, []byte("own with"))
	web.Write(process.Stdout, []byte("one\ntw"))
	odd.Write(process.Stderr, []byte("three\n"))
	web.Write(process.Stdout, []byte("o\nrest"))
	journal.Entrypoint(process.Stdout, []byte("out end\n"))
	web.Flush()
	journal.Close()
	web.Write(process.Stdout, []byte("after the end\n"))
	want := []string{"stdout F [web] one", "stderr F [a___b] three", "stdout F [web] two", "stdout F own without end", "stdout F [web] rest"}
	if got := texts(t, directory); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q", got)
	}
}

func TestJournalCutsLongLinesOfASource(t *testing.T) {
	directory := t.TempDir()
	journal := NewJournal(directory, 1<<20, 2)
	long := strings.Repeat("x", lineBytesMax*2)
	journal.Source("web").Write(process.Stdout, []byte(long+"\n"))
	journal.Close()
	joined, lines := "", texts(t, directory)
	for _, line := range lines {
		text, isWhole := strings.CutPrefix(line, "stdout F [web] ")
		if !isWhole || len(text) > lineBytesMax {
			t.Errorf("line of %d bytes begins %.40q", len(line), line)
		}
		joined += text
	}
	if joined != long || len(lines) != 3 {
		t.Errorf("%d lines, %d bytes", len(lines), len(joined))
	}
}

func TestJournalKeepsItsBoundForAllSources(t *testing.T) {
	directory := t.TempDir()
	journal := NewJournal(directory, 10_000, 3)
	sources := []*Source{journal.Source("a"), journal.Source("b")}
	for range 2000 {
		for _, source := range sources {
			source.Write(process.Stdout, []byte("a line of output\n"))
		}
	}
	journal.Close()
	entries, _ := os.ReadDir(directory)
	total := int64(0)
	for _, entry := range entries {
		info, _ := entry.Info()
		total += info.Size()
	}
	if len(entries) != 3 || total > 30_000 {
		t.Errorf("%d files, %d bytes", len(entries), total)
	}
}
