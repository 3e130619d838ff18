package ociruntime

import (
	"bufio"
	"context"
	"errors"
	"os"
	"time"
)

// What is said, a line each; sandboxd has the same.
const (
	readyLine = "ready\n"
	goLine    = "go\n"
)

// readyWithin bounds the wait for a first process that has begun to serve; a slower one is dialled by the node (ADR 20).
const readyWithin = 10 * time.Second

// handshake is our talk with a container's first process before its program runs. Its pipes end with this program: a process that is not
// told to go on by then ends, and the container is made again.
type handshake struct {
	// The container's ends.
	input, output *os.File
	// Ours.
	goOn, said *os.File
}

// newHandshake is nil for a container that is not asked for one, or that has had its own before it was saved.
func newHandshake(r RunRequest) (*handshake, error) {
	if !r.Handshake || r.RestoreFrom != nil {
		return nil, nil
	}
	var h handshake
	var err error
	if h.input, h.goOn, err = os.Pipe(); err != nil {
		return nil, err
	}
	if h.said, h.output, err = os.Pipe(); err != nil {
		return nil, errors.Join(err, h.input.Close(), h.goOn.Close())
	}
	return &h, nil
}

// theirs hands the container's ends over: the caller closes them.
func (h *handshake) theirs() [3]*os.File {
	if h == nil {
		return [3]*os.File{}
	}
	files := [3]*os.File{h.input, h.output, nil}
	h.input, h.output = nil, nil
	return files
}

func (h *handshake) sayGo() error {
	_, err := h.goOn.WriteString(goLine)
	return err
}

// awaitReady says whether the process serves; it returns as soon as it does, has ended, or takes too long.
func (h *handshake) awaitReady(ctx context.Context) bool {
	if h == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = h.said.SetReadDeadline(time.Now()) })()
	word, err := bufio.NewReader(h.said).ReadString('\n')
	return err == nil && word == readyLine
}

func (h *handshake) close() {
	if h != nil {
		_ = closeAll([]*os.File{h.input, h.output, h.goOn, h.said})
	}
}
