package process

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrNoInput says that a process was started without a standard input to write to.
var ErrNoInput = errors.New("process has no stdin")

// endOfTransmission typed on a terminal in its normal mode means end of file.
const endOfTransmission = 0x04

// input is the writing end of a process's standard input. Writers take turns; each can give up.
type input struct {
	file     *os.File
	terminal bool
	// turn holds one token: the goroutine that took it may write.
	turn   chan struct{}
	closed bool
}

func newInput(file *os.File, terminal bool) *input {
	i := &input{file: file, terminal: terminal, turn: make(chan struct{}, 1)}
	i.turn <- struct{}{}
	return i
}

// Write gives bytes to standard input and returns when the process, or its pipe, has taken them.
func (p *Process) Write(ctx context.Context, bytes []byte) error {
	return p.input.with(ctx, func(file *os.File) error {
		_, err := file.Write(bytes)
		return err
	})
}

// CloseInput ends standard input; on a terminal it types end of file instead.
func (p *Process) CloseInput(ctx context.Context) error {
	return p.input.with(ctx, func(file *os.File) error {
		if p.input.terminal {
			_, err := file.Write([]byte{endOfTransmission})
			return err
		}
		p.input.closed = true
		return file.Close()
	})
}

// with runs one write in turn; when the context ends first the write is interrupted.
func (i *input) with(ctx context.Context, write func(*os.File) error) error {
	if i == nil {
		return ErrNoInput
	}
	select {
	case <-i.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { i.turn <- struct{}{} }()
	if i.closed {
		return os.ErrClosed
	}
	stop := context.AfterFunc(ctx, func() { i.file.SetWriteDeadline(time.Unix(1, 0)) })
	err := write(i.file)
	if !stop() {
		i.file.SetWriteDeadline(time.Time{})
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// discard closes the input of a process that has ended. A terminal's file is the pump's to close.
func (i *input) discard() {
	if i == nil || i.terminal {
		return
	}
	i.file.Close()
}
