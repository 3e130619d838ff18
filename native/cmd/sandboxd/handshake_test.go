package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAwaitGo(t *testing.T) {
	for name, test := range map[string]struct {
		input string
		ok    bool
	}{
		"told to go":         {goLine, true},
		"nobody is there":    {"", false},
		"cut off in between": {"g", false},
		"told something":     {"stop\n", false},
	} {
		if err := awaitGo(strings.NewReader(test.input)); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The entrypoint waits for go, gets neither of the pipes, and is not started when the other side goes away.
func TestInitWaitsForGo(t *testing.T) {
	for name, answer := range map[string]string{"told": goLine, "left": "", "told and left": goLine} {
		t.Run(name, func(t *testing.T) {
			binary, err := buildDaemon()
			if err != nil {
				t.Fatal(err)
			}
			directory := t.TempDir()
			ran := filepath.Join(directory, "ran")
			script := "readlink /proc/$PPID/fd/0 /proc/$PPID/fd/1 > " + ran + ".tmp; mv " + ran + ".tmp " + ran
			daemon := exec.Command(binary, "init", "--handshake", "--listen=unix:"+filepath.Join(directory, "socket"), "--log-dir="+filepath.Join(directory, "log"),
				"--root-dir="+directory, "--", "/bin/sh", "-c", script)
			input, err := daemon.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			output, err := daemon.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := daemon.Start(); err != nil {
				t.Fatal(err)
			}
			if name == "told and left" {
				output.Close()
			} else if said, err := bufio.NewReader(output).ReadString('\n'); said != readyLine {
				t.Fatalf("said %q, %v", said, err)
			}
			if _, err := os.Stat(filepath.Join(directory, "socket")); err != nil && name != "told and left" {
				t.Errorf("ready before it listens: %v", err)
			}
			// Long enough for an entrypoint that does not wait.
			time.Sleep(100 * time.Millisecond)
			if _, err := os.Stat(ran); err == nil {
				t.Error("the entrypoint ran before go")
			}
			if _, err := io.WriteString(input, answer); err != nil {
				t.Fatal(err)
			}
			input.Close()
			err = daemon.Wait()
			links, readErr := os.ReadFile(ran)
			if told := answer != ""; (err == nil) != told || (readErr == nil) != told {
				t.Fatalf("daemon: %v, entrypoint: %v", err, readErr)
			}
			if answer != "" && string(links) != "/dev/null\n/dev/null\n" {
				t.Errorf("the daemon still holds %q", links)
			}
		})
	}
}
