package initd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/process"
)

var testReaper = sync.OnceValue(process.NewReaper)

func options(t *testing.T, script string) Options {
	t.Helper()
	registry, err := process.NewRegistry(testReaper(), process.Environment(), 10)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	return Options{
		Registry: registry, Command: []string{"/bin/sh", "-c", script}, Directory: directory, Journal: NewJournal(directory+"/log", 1<<20, 3),
		ExitFile: directory + "/exit.json",
	}
}

func readRecord(t *testing.T, name string) (record ExitRecord) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatal(err)
	}
	return record
}

func TestLastWordIsKept(t *testing.T) {
	for _, test := range []struct{ script, want string }{
		{"printf 'disk full' > message; exit 2", "disk full"},
		{"head -c 9000 /dev/zero | tr '\\0' x > message", strings.Repeat("x", messageBytesMax)},
		{"true", ""},
	} {
		o := options(t, test.script)
		o.MessageFile, o.MessageCopy = o.Directory+"/message", o.Directory+"/kept"
		Run(o, make(chan os.Signal))
		if kept, _ := os.ReadFile(o.MessageCopy); string(kept) != test.want {
			t.Errorf("%s: kept %d bytes", test.script, len(kept))
		}
	}
}

var logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) [FP] `)

func TestEntrypointLeavesItsLogAndExitCode(t *testing.T) {
	o := options(t, "echo out; echo err >&2; sleep 0.05; printf 'no end'; exit 3")
	if code := Run(o, make(chan os.Signal)); code != 3 {
		t.Errorf("code %d", code)
	}
	record := readRecord(t, o.ExitFile)
	if record.ExitCode != 3 || record.Signal != "" || !record.FinishedAt.After(record.StartedAt) {
		t.Errorf("%+v", record)
	}
	text, _ := os.ReadFile(o.Directory + "/log/" + LogName)
	var rest []string
	for line := range strings.Lines(string(text)) {
		if !logLine.MatchString(line) {
			t.Errorf("line %q", line)
		}
		rest = append(rest, line[31:])
	}
	joined := strings.Join(rest, "")
	for _, want := range []string{"stdout F out\n", "stderr F err\n", "stdout P no end\n"} {
		if !strings.Contains(joined, want) {
			t.Errorf("%q lacks %q", joined, want)
		}
	}
}

func TestSignalsReachTheEntrypoint(t *testing.T) {
	o := options(t, "trap 'echo caught; exit 42' TERM; echo ready > ready; while :; do sleep 0.02; done")
	signals := make(chan os.Signal, 1)
	done := make(chan int)
	go func() { done <- Run(o, signals) }()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(o.Directory + "/ready"); err == nil || time.Now().After(deadline) {
			break
		}
	}
	signals <- syscall.SIGTERM
	if code := <-done; code != 42 {
		t.Errorf("code %d", code)
	}
}

func TestRealTimeSignalsReachTheEntrypoint(t *testing.T) {
	const systemdHalt = syscall.Signal(37)
	o := options(t, fmt.Sprintf("trap 'exit 43' %d; while :; do sleep 0.02; done", systemdHalt))
	signals := Signals()
	defer signal.Stop(signals)
	done := make(chan int)
	go func() { done <- Run(o, signals) }()
	for deadline := time.After(10 * time.Second); ; {
		select {
		case code := <-done:
			if code != 43 && code != 128+int(systemdHalt) {
				t.Errorf("code %d", code)
			}
			return
		case <-deadline:
			t.Fatal("the signal did not arrive")
		case <-time.After(20 * time.Millisecond):
			if err := syscall.Kill(os.Getpid(), systemdHalt); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSignalDeathAndFailedStart(t *testing.T) {
	o := options(t, "kill -SEGV $$")
	if code := Run(o, make(chan os.Signal)); code != 139 || readRecord(t, o.ExitFile).Signal != "SIGSEGV" {
		t.Errorf("code %d, %+v", code, readRecord(t, o.ExitFile))
	}
	o.Command = []string{"/no/such"}
	if code := Run(o, make(chan os.Signal)); code != 127 || readRecord(t, o.ExitFile).Error == "" {
		t.Errorf("code %d, %+v", code, readRecord(t, o.ExitFile))
	}
	o.Command = []string{o.ExitFile}
	if code := Run(o, make(chan os.Signal)); code != 126 {
		t.Errorf("code %d", code)
	}
}

func TestSandboxWithoutEntrypointStays(t *testing.T) {
	o := options(t, "")
	o.Command = nil
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGWINCH
	signals <- syscall.SIGTERM
	if code := Run(o, signals); code != 0 || len(signals) != 0 {
		t.Errorf("code %d", code)
	}
}

func TestEntrypointCanBeFoundByItsName(t *testing.T) {
	o := options(t, "read line; echo got $line")
	o.Stdin = true
	done := make(chan int)
	go func() { done <- Run(o, make(chan os.Signal)) }()
	var p *process.Process
	for p == nil {
		p = o.Registry.Get(process.Entrypoint)
	}
	if err := p.Write(t.Context(), []byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 0 {
		t.Errorf("code %d", code)
	}
	text, _ := os.ReadFile(o.Directory + "/log/" + LogName)
	if !bytes.Contains(text, []byte("stdout F got hello\n")) {
		t.Errorf("log %q", text)
	}
}

func TestLogRotatesAndKeepsItsBound(t *testing.T) {
	directory := t.TempDir()
	log, err := OpenLogFile(directory, 10_000, 3, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		log.Write(process.Stdout, fmt.Appendf(nil, "line %d\n", i))
	}
	log.Close()
	names, _ := filepath.Glob(directory + "/*")
	if len(names) != 3 {
		t.Fatalf("files %v", names)
	}
	for _, name := range names {
		if info, _ := os.Stat(name); info.Size() > 10_000 {
			t.Errorf("%s has %d bytes", name, info.Size())
		}
	}
	text, _ := os.ReadFile(directory + "/" + LogName)
	if !bytes.HasSuffix(text, []byte("line 1999\n")) {
		t.Error("the newest line is missing")
	}
}

func TestLongLinesAreCut(t *testing.T) {
	directory := t.TempDir()
	log, _ := OpenLogFile(directory, 1<<20, 1, time.Now)
	long := strings.Repeat("x", lineBytesMax*2+5)
	log.Write(process.Stderr, []byte(long[:100]))
	log.Write(process.Stderr, []byte(long[100:]+"\nshort\n"))
	log.Close()
	text, _ := os.ReadFile(directory + "/" + LogName)
	var joined strings.Builder
	tags := ""
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		tags += fields[2]
		joined.WriteString(fields[3])
	}
	if tags != "PPFF" || joined.String() != long+"short" {
		t.Errorf("tags %s, %d bytes", tags, joined.Len())
	}
}
