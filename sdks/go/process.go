package sandbox

import (
	"context"
	"errors"
	"io"
	"strconv"

	"agent-sandbox.dev/sdk/errorcode"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
)

func itoa(number int) string { return strconv.Itoa(number) }

// Process is a process in a sandbox. It outlives the connection and this handle.
type Process struct {
	// ID is 16 hexadecimal digits; Sandbox.Attach finds the process again, from anywhere.
	ID string
	// Pid is its process id inside the sandbox.
	Pid int
	box *Sandbox
}

// SignalScope says which processes a signal reaches.
type SignalScope string

const (
	// ScopeTree is the process and everything that it started.
	ScopeTree SignalScope = "tree"
	// ScopeGroup is the process group.
	ScopeGroup SignalScope = "group"
	// ScopeProcess is the process alone.
	ScopeProcess SignalScope = "process"
)

var wireScopes = map[SignalScope]sandboxv1.SignalScope{
	ScopeTree: sandboxv1.SignalScope_SIGNAL_SCOPE_TREE, ScopeGroup: sandboxv1.SignalScope_SIGNAL_SCOPE_GROUP,
	ScopeProcess: sandboxv1.SignalScope_SIGNAL_SCOPE_PROCESS,
}

// Signal sends a signal by name ("SIGTERM", "TERM" or "15"); false where no process was left to get it.
func (p *Process) Signal(ctx context.Context, name string, scope SignalScope) (bool, error) {
	wire, known := wireScopes[scope]
	if !known {
		return false, newError(errorcode.InvalidArgument, "no scope %q of a signal", string(scope))
	}
	answer, err := p.box.processes.Signal(ctx, &sandboxv1.SignalRequest{Id: p.ID, Signal: name, Scope: wire})
	if err = callError(ctx, err); CodeOf(err) == errorcode.NotFound {
		return false, nil
	}
	return answer.GetSignalled() > 0, err
}

// Kill ends the whole tree; false where nothing was left of it.
func (p *Process) Kill(ctx context.Context) (bool, error) { return p.Signal(ctx, "SIGKILL", ScopeTree) }

// Resize tells a process with a terminal its window's size.
func (p *Process) Resize(ctx context.Context, size TerminalSize) error {
	request := &sandboxv1.ResizeRequest{Id: p.ID, Size: &sandboxv1.TerminalSize{Cols: uint32(size.Cols), Rows: uint32(size.Rows)}}
	_, err := p.box.processes.Resize(ctx, request)
	return callError(ctx, err)
}

// WriteStdin gives bytes to standard input, and closes it behind them if asked; it returns when the process has taken
// them. Never sent again after a lost connection: the process may have read them.
func (p *Process) WriteStdin(ctx context.Context, data []byte, closeAfter bool) error {
	for {
		piece := data[:min(len(data), stdinBytesMax)]
		data = data[len(piece):]
		request := &sandboxv1.WriteStdinRequest{Id: p.ID, Data: piece, Close: closeAfter && len(data) == 0}
		_, err := p.box.processes.WriteStdin(ctx, request)
		if err = callError(ctx, err); err != nil {
			return inputError(err)
		}
		if len(data) == 0 {
			return nil
		}
	}
}

// stdinBytesMax keeps a message below the 4 MiB that sandboxd takes.
const stdinBytesMax = 2 << 20

func inputError(err error) error {
	var own *Error
	if errors.As(err, &own) && own.Code == errorcode.Conflict {
		ended := *own
		ended.Code = errorcode.ProcessEnded
		return &ended
	}
	return err
}

// stdinWriter is the writer of StdinPipe.
type stdinWriter struct{ command *Cmd }

func (w *stdinWriter) Write(data []byte) (int, error) {
	if w.command.Process == nil {
		return 0, errors.New("sandbox: write before Start")
	}
	if len(data) == 0 {
		return 0, nil
	}
	if err := w.command.Process.WriteStdin(w.command.ctx, data, false); err != nil {
		return 0, err
	}
	return len(data), nil
}

func (w *stdinWriter) Close() error {
	if w.command.Process == nil {
		return errors.New("sandbox: close before Start")
	}
	return w.command.Process.WriteStdin(w.command.ctx, nil, true)
}

// feed gives Stdin to the process; one that ends without reading it is no error.
func (c *Cmd) feed() error {
	writer := &stdinWriter{c}
	_, err := io.CopyBuffer(struct{ io.Writer }{writer}, c.Stdin, make([]byte, 256<<10))
	if err == nil {
		err = writer.Close()
	}
	if code := CodeOf(err); code == errorcode.ProcessEnded || code == errorcode.NotFound {
		return nil
	}
	return err
}
