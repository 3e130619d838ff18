package probe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// logTime bounds floodLog. A sandbox wrote 43 MB of log a second on a machine of two busy processors.
const logTime = 20 * time.Second

// logLine is one line of a flood; Name goes before it.
const logLine = "a line of a log that is written as fast as it can be, again and again and again and again\n"

// linesAtOnce are written by one call: less than a pipe holds.
const linesAtOnce = 500

// floodLog writes Number bytes to the log of its container, as lines that begin with Name. It comes through when all of them are taken.
func floodLog(a Attempt) Outcome {
	output, err := openContainerOutput()
	if err != nil {
		return refused(err)
	}
	defer output.Close()
	block := bytes.Repeat([]byte(a.Name+" "+logLine), linesAtOnce)
	if int64(len(block)) > a.Number {
		block = []byte(a.Name + " " + logLine)
	}
	written := int64(0)
	for end := time.Now().Add(logTime); written < a.Number; written += int64(len(block)) {
		if time.Now().After(end) {
			return Outcome{Unknown: true, Detail: fmt.Sprintf("only %d bytes of log after %v", written, logTime)}
		}
		if _, err := output.Write(block); err != nil {
			return refused(fmt.Errorf("after %d bytes of log: %w", written, err))
		}
	}
	return through("wrote %d bytes of log", written)
}

// openContainerOutput opens what the container's program writes its log to: the output of the first process, or, where that is a daemon that has none,
// of its oldest child.
func openContainerOutput() (*os.File, error) {
	for _, pid := range append([]int{1}, childrenOfFirst()...) {
		name := fmt.Sprintf("/proc/%d/fd/1", pid)
		if target, err := os.Readlink(name); err == nil && strings.HasPrefix(target, "pipe:") {
			return os.OpenFile(name, os.O_WRONLY, 0)
		}
	}
	return nil, errors.New("no process here has an output that could be the container's")
}

// childrenOfFirst are the processes whose parent is process 1, the oldest first.
func childrenOfFirst() []int {
	entries, _ := os.ReadDir("/proc")
	var children []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && strings.Contains(string(status), "\nPPid:\t1\n") {
			children = append(children, pid)
		}
	}
	slices.Sort(children)
	return children
}
