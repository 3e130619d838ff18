package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"syscall"

	"agent-sandbox.dev/native/internal/beneath"
	processv1 "agent-sandbox.dev/native/internal/gen/process/v1"
	"agent-sandbox.dev/native/internal/process"
	"connectrpc.com/connect"
)

// replyBytesMax keeps an Execute reply below the 4 MiB that a default gRPC client accepts, envelope included.
const replyBytesMax = 4<<20 - 16<<10

// stderrBytesMin is how much of a reply standard error keeps when both streams are long.
const stderrBytesMin = 1 << 20

// startLogBytes is how far a Start stream may lag before the process is held back.
const startLogBytes = 256 << 10

// publishedProcesses is process.v1.ProcessService.
type publishedProcesses struct{ server *Server }

func (s *publishedProcesses) spec(config *processv1.ProcessConfig) (process.Spec, error) {
	if len(config.GetCommand()) == 0 {
		return process.Spec{}, connect.NewError(connect.CodeInvalidArgument, errors.New("command is required"))
	}
	directory := s.server.options.Root.Base()
	if cwd := config.GetCwd(); cwd != "" {
		place, err := s.server.options.Root.Resolve(cwd, true)
		if err != nil {
			code := connect.CodeInternal
			if errors.Is(err, beneath.ErrEscapes) {
				code = connect.CodePermissionDenied
			}
			return process.Spec{}, connect.NewError(code, fmt.Errorf("cwd: %w", err))
		}
		directory = place.Path()
		place.Close()
	}
	return process.Spec{Command: config.GetCommand(), Env: config.GetEnvVars(), Dir: directory, Forget: true}, nil
}

// startFailure tells why a process did not start, in the reference daemon's words.
func startFailure(prefix string, err error) error {
	var failure *process.StartError
	if !errors.As(err, &failure) {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("%s: %w", prefix, err))
	}
	switch failure.Kind {
	case process.StartNotFound:
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("%s: command or path not found: %w", prefix, err))
	case process.StartDenied:
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s: permission denied: %w", prefix, err))
	case process.StartInvalid:
		return connect.NewError(connect.CodeInvalidArgument, err)
	case process.StartExhausted:
		return connect.NewError(connect.CodeResourceExhausted, err)
	case process.StartClosing:
		return connect.NewError(connect.CodeUnavailable, err)
	case process.StartCancelled:
		return connect.NewError(connect.CodeAborted, err)
	case process.StartFailed:
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("%s: %w", prefix, err))
}

// Execute runs a process to its end. A client that goes away takes the whole tree with it.
func (s *publishedProcesses) Execute(ctx context.Context, request *processv1.ExecuteRequest) (*processv1.ExecuteResponse, error) {
	spec, err := s.spec(request.GetConfig())
	if err != nil {
		return nil, err
	}
	spec.CaptureBytes = replyBytesMax
	p, err := s.server.options.Registry.Start(spec)
	if err != nil {
		return nil, startFailure("failed to execute command", err)
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		p.KillTree()
		return nil, contextFailure(ctx)
	}
	return executeReply(ctx, p, exit), nil
}

// executeReply cuts output that is too long for a default client, and says so on standard error and in headers.
func executeReply(ctx context.Context, p *process.Process, exit process.Exit) *processv1.ExecuteResponse {
	stdout, stdoutDropped := p.Captured(process.Stdout)
	stderr, stderrDropped := p.Captured(process.Stderr)
	if excess := len(stdout) + len(stderr) - replyBytesMax; excess > 0 {
		keep := min(len(stderr), max(stderrBytesMin, replyBytesMax-len(stdout)))
		stderrDropped += uint64(len(stderr) - keep)
		stderr = stderr[:keep:keep]
		if excess = len(stdout) + keep - replyBytesMax; excess > 0 {
			stdoutDropped += uint64(excess)
			stdout = stdout[:len(stdout)-excess]
		}
	}
	if stdoutDropped+stderrDropped > 0 {
		if call, ok := connect.CallInfoForHandlerContext(ctx); ok {
			call.ResponseHeader().Set("Sandboxd-Stdout-Dropped-Bytes", strconv.FormatUint(stdoutDropped, 10))
			call.ResponseHeader().Set("Sandboxd-Stderr-Dropped-Bytes", strconv.FormatUint(stderrDropped, 10))
		}
		stderr = fmt.Appendf(stderr, "\nsandboxd: output truncated: %d bytes of stdout and %d bytes of stderr left out\n", stdoutDropped, stderrDropped)
	}
	return &processv1.ExecuteResponse{ExitCode: int32(exit.Code), Stdout: stdout, Stderr: stderr}
}

// contextFailure tells a caller that it has run out of time or gone.
func contextFailure(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("deadline exceeded; the process and everything it started was killed"))
	}
	return connect.NewError(connect.CodeCanceled, ctx.Err())
}

func terminalSize(cols, rows uint32) (process.Size, error) {
	if cols > math.MaxUint16 || rows > math.MaxUint16 {
		return process.Size{}, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("terminal size %dx%d is too large", cols, rows))
	}
	return process.Size{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

// Start runs a process for as long as the stream lasts; losing the stream kills the tree, because this service has no way
// to find the process again. A slow client holds the process back, nothing is lost.
func (s *publishedProcesses) Start(ctx context.Context, request *processv1.StartRequest, stream *connect.ServerStream[processv1.StartResponse]) error {
	spec, err := s.spec(request.GetConfig())
	if err != nil {
		return err
	}
	prefix := "failed to start command"
	spec.Stdin, spec.OutputBytes = true, startLogBytes
	if request.Pty != nil {
		size, err := terminalSize(request.Pty.GetCols(), request.Pty.GetRows())
		if err != nil {
			return err
		}
		spec.Terminal, prefix = &size, "failed to start command with PTY"
	}
	p, err := s.server.options.Registry.Start(spec)
	if err != nil {
		return startFailure(prefix, err)
	}
	reader := p.Log.Read(0, true)
	defer reader.Close()
	if err := followPublished(ctx, p, reader, stream); err != nil {
		p.KillTree()
		return err
	}
	return nil
}

func followPublished(ctx context.Context, p *process.Process, reader *process.Reader, stream *connect.ServerStream[processv1.StartResponse]) error {
	initial := &processv1.StartResponse{Event: &processv1.StartResponse_Init{Init: &processv1.InitEvent{ProcessId: p.Number}}}
	if err := stream.Send(initial); err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("failed to send InitEvent: %w", err))
	}
	for {
		piece, ok, err := reader.Next(ctx, true)
		if err != nil {
			return contextFailure(ctx)
		}
		if !ok {
			break
		}
		response := &processv1.StartResponse{Event: &processv1.StartResponse_Stdout{Stdout: piece.Bytes}}
		if piece.Stream == process.Stderr {
			response.Event = &processv1.StartResponse_Stderr{Stderr: piece.Bytes}
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		return contextFailure(ctx)
	}
	return stream.Send(&processv1.StartResponse{Event: &processv1.StartResponse_Exit{Exit: &processv1.ExitEvent{ExitCode: int32(exit.Code)}}})
}

func (s *publishedProcesses) find(number int32) (*process.Process, error) {
	p := s.server.options.Registry.GetNumber(number)
	if p == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process %d not found", number))
	}
	return p, nil
}

// WriteStdin writes, or closes, standard input; on a terminal closing types end-of-file.
func (s *publishedProcesses) WriteStdin(ctx context.Context, request *processv1.WriteStdinRequest) (*processv1.WriteStdinResponse, error) {
	p, err := s.find(request.GetProcessId())
	if err != nil {
		return nil, err
	}
	operation := "write"
	switch payload := request.GetPayload().(type) {
	case *processv1.WriteStdinRequest_Input:
		if len(payload.Input) > 0 {
			err = p.Write(ctx, payload.Input)
		}
	case *processv1.WriteStdinRequest_Eof:
		operation, err = "close", p.CloseInput(ctx)
	}
	switch {
	case err == nil:
		return &processv1.WriteStdinResponse{}, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, process.ErrNoInput):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("process %d has no stdin", p.Number))
	}
	return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("failed to %s stdin: %w", operation, err))
}

// SendSignal signals the process group; SIGKILL reaches the whole tree.
func (s *publishedProcesses) SendSignal(_ context.Context, request *processv1.SendSignalRequest) (*processv1.SendSignalResponse, error) {
	p, err := s.find(request.GetProcessId())
	if err != nil {
		return nil, err
	}
	scope := process.ScopeGroup
	switch request.GetSignal() {
	case processv1.Signal_SIGNAL_SIGINT, processv1.Signal_SIGNAL_SIGTERM:
	case processv1.Signal_SIGNAL_SIGKILL:
		scope = process.ScopeTree
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("unsupported or unspecified signal: %s", request.GetSignal()))
	}
	if _, err := p.Signal(syscall.Signal(request.GetSignal()), scope); err != nil {
		code := connect.CodeInternal
		if errors.Is(err, syscall.EPERM) {
			code = connect.CodePermissionDenied
		}
		return nil, connect.NewError(code, fmt.Errorf("failed to send signal: %w", err))
	}
	return &processv1.SendSignalResponse{}, nil
}

// ResizeTTY changes the window size.
func (s *publishedProcesses) ResizeTTY(_ context.Context, request *processv1.ResizeTTYRequest) (*processv1.ResizeTTYResponse, error) {
	p, err := s.find(request.GetProcessId())
	if err != nil {
		return nil, err
	}
	size, err := terminalSize(request.GetCols(), request.GetRows())
	if err != nil {
		return nil, err
	}
	if err := p.Resize(size); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("failed to resize TTY: %w", err))
	}
	return &processv1.ResizeTTYResponse{}, nil
}
