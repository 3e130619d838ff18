package sandbox

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"agent-sandbox.dev/sdk/protocol/agentsandbox/v1/agentsandboxv1connect"
	"connectrpc.com/connect"
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

// eventSource follows a process across lost connections. A start whose answer was lost is repeated under the same key,
// which the sandbox answers with the process that it started the first time; later losses attach behind the last byte
// seen. So no command ever runs twice, and no output is passed on twice.
type eventSource struct {
	client     agentsandboxv1connect.ProcessServiceClient
	spec       *sandboxv1.ProcessSpec
	key        string
	attachID   string
	offset     uint64
	hasStarted bool
	// limitReached finds the limit that ended the sandbox since a moment.
	limitReached func(ctx context.Context, since time.Time) (Condition, bool)
}

const (
	// Eight attempts, doubling from 50 ms, span some twelve seconds: longer than a router takes to start again.
	followAttemptsMax = 8
	followPauseFirst  = 50 * time.Millisecond
)

var errExited = errors.New("the process has exited")

func (s *eventSource) follow(ctx context.Context, take func(*sandboxv1.ProcessEvent) error) error {
	attempts, since := 0, time.Now()
	for {
		err := s.stream(ctx, func(event *sandboxv1.ProcessEvent) error {
			attempts = 0
			return s.pass(event, take)
		})
		if errors.Is(err, errExited) {
			return nil
		}
		attempts++
		mayFollowAgain := isUnanswered(err)
		if s.hasStarted && (CodeOf(err) == errorcode.NotFound || mayFollowAgain && attempts > followAttemptsMax) {
			return s.goneWithSandbox(ctx, err, since)
		}
		if !mayFollowAgain || attempts > followAttemptsMax {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(followPauseFirst << (attempts - 1)):
		}
	}
}

// isUnanswered says whether no answer came, or it broke off. A start has its key and the other calls change nothing twice, so that all
// are safe to repeat.
func isUnanswered(err error) bool {
	return CodeOf(err) == errorcode.ConnectionLost || CodeOf(err) == errorcode.Unavailable
}

// goneWithSandbox is the end of a process whose daemon is no more: its sandbox was stopped, perhaps by a limit, and perhaps started
// again. Where the connection was lost and no limit is known, it may only be the connection.
func (s *eventSource) goneWithSandbox(ctx context.Context, err error, since time.Time) error {
	reached, known := s.limitReached(ctx, since)
	why := ", which was stopped or restarted"
	switch {
	case known:
		why = ": " + reached.Message + " (" + reached.Type + ")"
	case CodeOf(err) != errorcode.NotFound:
		return err
	}
	return &Error{Code: errorcode.ProcessEnded, Message: "the process ended with its sandbox" + why, Limit: reached.Type, Err: err}
}

// takeError is an error of the one who takes events, which no new connection mends.
type takeError struct{ error }

func (s *eventSource) stream(ctx context.Context, take func(*sandboxv1.ProcessEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.open(ctx)
	if err != nil {
		return callError(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		if err := take(stream.Msg()); err != nil {
			var own takeError
			if errors.As(err, &own) {
				return own.error
			}
			return err
		}
	}
	if err := callError(ctx, stream.Err()); err != nil {
		return err
	}
	return newError(errorcode.ConnectionLost, "the stream ended before the process did")
}

func (s *eventSource) open(ctx context.Context) (*connect.ServerStreamForClient[sandboxv1.ProcessEvent], error) {
	if s.attachID != "" {
		return s.client.Attach(ctx, &sandboxv1.AttachRequest{Id: s.attachID, FromOffset: s.offset})
	}
	return s.client.Start(ctx, &sandboxv1.StartRequest{Spec: s.spec, IdempotencyKey: s.key})
}

// pass hands on what was not passed on before.
func (s *eventSource) pass(event *sandboxv1.ProcessEvent, take func(*sandboxv1.ProcessEvent) error) error {
	switch body := event.GetEvent().(type) {
	case *sandboxv1.ProcessEvent_Started:
		s.attachID = body.Started.GetId()
		if s.hasStarted {
			return nil
		}
		s.hasStarted = true
	case *sandboxv1.ProcessEvent_Stdout:
		s.trim(body.Stdout)
	case *sandboxv1.ProcessEvent_Stderr:
		s.trim(body.Stderr)
	case *sandboxv1.ProcessEvent_Dropped:
		body.Dropped.FromOffset = max(body.Dropped.GetFromOffset(), s.offset)
		body.Dropped.ToOffset = max(body.Dropped.GetToOffset(), body.Dropped.GetFromOffset())
		s.offset = body.Dropped.GetToOffset()
	case *sandboxv1.ProcessEvent_Exit:
		if err := take(event); err != nil {
			return takeError{err}
		}
		return errExited
	}
	if err := take(event); err != nil {
		return takeError{err}
	}
	return nil
}

// trim cuts off what was passed on already: a repeated start replays from the beginning.
func (s *eventSource) trim(output *sandboxv1.Output) {
	end := output.GetOffset() + uint64(len(output.GetData()))
	if seen := s.offset; output.GetOffset() < seen {
		output.Data = output.GetData()[min(uint64(len(output.GetData())), seen-output.GetOffset()):]
	}
	s.offset = max(s.offset, end)
}
