package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"agent-sandbox.dev/native/internal/process"
	"agent-sandbox.dev/native/internal/supervise"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Bounds of the output that is kept for replay, and of one Run reply per stream.
const (
	outputBytesDefault = 1 << 20
	outputBytesMin     = 64 << 10
	outputBytesMax     = 64 << 20
	runBytesMax        = 1900 << 10
)

// processes is agentsandbox.v1.ProcessService.
type processes struct{ server *Server }

func (s *processes) spec(requested *sandboxv1.ProcessSpec) (process.Spec, error) {
	if len(requested.GetCommand()) == 0 {
		return process.Spec{}, connect.NewError(connect.CodeInvalidArgument, errors.New("spec.command is required"))
	}
	place, err := s.server.options.FileSystem.Resolve(requested.GetCwd(), true)
	if err != nil {
		return process.Spec{}, fileFailure(fmt.Errorf("spec.cwd: %w", err))
	}
	defer place.Close()
	spec := process.Spec{
		Command: requested.GetCommand(), Env: requested.GetEnv(), ClearEnv: requested.GetClearEnv(), Dir: place.Path(), User: requested.GetUser(),
		Timeout: requested.GetTimeout().AsDuration(), Stdin: requested.GetStdin(), Tag: requested.GetTag(), OutputBytes: outputBytesDefault,
	}
	if asked := requested.GetOutputBufferBytes(); asked > 0 {
		spec.OutputBytes = int(min(max(asked, outputBytesMin), outputBytesMax))
	}
	if requested.GetTerminal() != nil {
		size, err := terminalSize(requested.GetTerminal().GetCols(), requested.GetTerminal().GetRows())
		if err != nil {
			return process.Spec{}, err
		}
		spec.Terminal = &size
	}
	for _, limit := range requested.GetLimits() {
		spec.Limits = append(spec.Limits, process.Limit{Name: limit.GetName(), Soft: limit.GetSoft(), Hard: limit.GetHard()})
	}
	return spec, nil
}

func (s *processes) find(id string) (*process.Process, error) {
	p := s.server.options.Registry.Get(id)
	if p == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process %q not found", id))
	}
	return p, nil
}

// firstSentMsMax is a year: longer than anybody repeats a request, and within what a duration can hold.
const firstSentMsMax = 365 * 24 * 3600 * 1000

// Start runs a process and follows it. The process outlives the stream unless kill_on_disconnect is set.
func (s *processes) Start(ctx context.Context, request *sandboxv1.StartRequest, stream *connect.ServerStream[sandboxv1.ProcessEvent]) error {
	spec, err := s.spec(request.GetSpec())
	if err != nil {
		return err
	}
	p, replayed, err := s.start(request, spec)
	if err != nil {
		return ownStartFailure("failed to start command", err)
	}
	// The first reader of a process that is not detached loses nothing: while it is there, a full buffer makes the process wait.
	reader := p.Log.Read(0, !request.GetDetach() && !replayed)
	defer reader.Close()
	started := describe(p)
	started.Replayed = replayed
	err = stream.Send(&sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Started{Started: started}})
	if err == nil && !request.GetDetach() {
		err = follow(ctx, p, reader, true, stream)
	}
	if err != nil && request.GetKillOnDisconnect() {
		p.KillTree()
	}
	return err
}

// start begins a process, as a service where the request names one, and lets its output into the sandbox's log where that is asked for.
func (s *processes) start(request *sandboxv1.StartRequest, spec process.Spec) (*process.Process, bool, error) {
	key := request.GetIdempotencyKey()
	if request.GetService() != "" {
		return s.server.options.Services.Start(request.GetService(), key, spec)
	}
	firstSentAgo := time.Duration(min(request.GetFirstSentMsAgo(), firstSentMsMax)) * time.Millisecond
	if !request.GetSpec().GetLog() {
		return s.server.options.Registry.StartAgain(key, spec, firstSentAgo)
	}
	spec.ID = process.NewID()
	source := s.server.options.Journal.Source(cmp.Or(spec.Tag, path.Base(spec.Command[0])+"-"+spec.ID[:8]))
	spec.Tee = source.Write
	p, replayed, err := s.server.options.Registry.StartAgain(key, spec, firstSentAgo)
	if err == nil && !replayed {
		go func() {
			<-p.Done()
			source.Flush()
		}()
	}
	return p, replayed, err
}

// EndService ends what a Start with that service's name keeps running.
func (s *processes) EndService(_ context.Context, request *sandboxv1.EndServiceRequest) (*sandboxv1.EndServiceResponse, error) {
	return &sandboxv1.EndServiceResponse{Ended: s.server.options.Services.End(request.GetName())}, nil
}

// ownStartFailure is startFailure, and says what to do about a mistake that is known.
func ownStartFailure(prefix string, err error) error {
	if errors.Is(err, supervise.ErrName) || errors.Is(err, supervise.ErrTooMany) {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	failure := startFailure(prefix, err)
	var explained *process.Explained
	if errors.As(err, &explained) {
		return connect.NewError(connect.CodeOf(failure), fmt.Errorf("%s: %s", prefix, explained.Sentence))
	}
	if errors.Is(err, process.ErrNoProgram) {
		return connect.NewError(connect.CodeOf(failure), fmt.Errorf("%s: command or path not found: %w; use an image that has it, or name it by its path", prefix, err))
	}
	return failure
}

// Cancel ends what a key started, or keeps it from starting.
func (s *processes) Cancel(_ context.Context, request *sandboxv1.CancelRequest) (*sandboxv1.CancelResponse, error) {
	if request.GetIdempotencyKey() == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("idempotency_key is required"))
	}
	return &sandboxv1.CancelResponse{Id: s.server.options.Registry.Cancel(request.GetIdempotencyKey())}, nil
}

// Attach replays and follows.
func (s *processes) Attach(ctx context.Context, request *sandboxv1.AttachRequest, stream *connect.ServerStream[sandboxv1.ProcessEvent]) error {
	p, err := s.find(request.GetId())
	if err != nil {
		return err
	}
	if _, end := p.Log.Bounds(); request.GetFromOffset() > end {
		return connect.NewError(connect.CodeOutOfRange, fmt.Errorf("from_offset %d is beyond the output's end %d", request.GetFromOffset(), end))
	}
	reader := p.Log.Read(request.GetFromOffset(), false)
	defer reader.Close()
	if err := stream.Send(&sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Started{Started: describe(p)}}); err != nil {
		return err
	}
	return follow(ctx, p, reader, !request.GetNoFollow(), stream)
}

// follow streams output and, at its end, the exit.
func follow(ctx context.Context, p *process.Process, reader *process.Reader, wait bool, stream *connect.ServerStream[sandboxv1.ProcessEvent]) error {
	for {
		piece, ok, err := reader.Next(ctx, wait)
		if err != nil {
			return ctx.Err()
		}
		if !ok {
			break
		}
		if err := stream.Send(pieceEvent(piece)); err != nil {
			return err
		}
	}
	exit, ended := p.Exit()
	if !ended && wait {
		var err error
		if exit, err = p.Wait(ctx); err != nil {
			return ctx.Err()
		}
		ended = true
	}
	if !ended {
		return nil
	}
	return stream.Send(&sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Exit{Exit: describeExit(exit)}})
}

func pieceEvent(piece process.Piece) *sandboxv1.ProcessEvent {
	if piece.DroppedTo > 0 {
		return &sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Dropped{Dropped: &sandboxv1.Dropped{FromOffset: piece.Offset, ToOffset: piece.DroppedTo}}}
	}
	output := &sandboxv1.Output{Data: piece.Bytes, Offset: piece.Offset}
	if piece.Stream == process.Stderr {
		return &sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Stderr{Stderr: output}}
	}
	return &sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Stdout{Stdout: output}}
}

// Run runs a process to its end; a caller that goes away takes the tree with it, unless an idempotency key lets it ask again.
func (s *processes) Run(ctx context.Context, request *sandboxv1.RunRequest) (*sandboxv1.RunResponse, error) {
	spec, err := s.spec(request.GetSpec())
	if err != nil {
		return nil, err
	}
	spec.CaptureBytes, spec.Forget = runBytesMax, true
	if asked := request.GetOutputBytesMax(); asked > 0 {
		spec.CaptureBytes = int(min(asked, runBytesMax))
	}
	spec.Stdin = len(request.GetStdin()) > 0
	p, replayed, err := s.server.options.Registry.StartOnce(request.GetIdempotencyKey(), spec)
	if err != nil {
		return nil, ownStartFailure("failed to execute command", err)
	}
	if spec.Stdin && !replayed {
		go feed(p, request.GetStdin())
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		if request.GetIdempotencyKey() == "" {
			p.KillTree()
		}
		return nil, contextFailure(ctx)
	}
	response := &sandboxv1.RunResponse{Id: p.ID, Exit: describeExit(exit)}
	response.Stdout, response.StdoutDroppedBytes = p.Captured(process.Stdout)
	response.Stderr, response.StderrDroppedBytes = p.Captured(process.Stderr)
	return response, nil
}

// feed gives a process its whole input; a process that ends without reading it is no error.
func feed(p *process.Process, input []byte) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-p.Done()
		cancel()
	}()
	if p.Write(ctx, input) == nil {
		p.CloseInput(ctx)
	}
}

// Get describes one process.
func (s *processes) Get(_ context.Context, request *sandboxv1.GetRequest) (*sandboxv1.GetResponse, error) {
	p, err := s.find(request.GetId())
	if err != nil {
		return nil, err
	}
	return &sandboxv1.GetResponse{Process: describe(p)}, nil
}

// List describes all processes.
func (s *processes) List(_ context.Context, request *sandboxv1.ListRequest) (*sandboxv1.ListResponse, error) {
	response := &sandboxv1.ListResponse{}
	for _, p := range s.server.options.Registry.List() {
		if _, ended := p.Exit(); !ended || !request.GetRunningOnly() {
			response.Processes = append(response.Processes, describe(p))
		}
	}
	return response, nil
}

// Wait returns when the process has ended, or when the time is up.
func (s *processes) Wait(ctx context.Context, request *sandboxv1.WaitRequest) (*sandboxv1.WaitResponse, error) {
	p, err := s.find(request.GetId())
	if err != nil {
		return nil, err
	}
	var timeUp <-chan time.Time
	if limit := request.GetTimeout().AsDuration(); limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeUp = timer.C
	}
	select {
	case <-p.Done():
	case <-timeUp:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &sandboxv1.WaitResponse{Process: describe(p)}, nil
}

var scopes = map[sandboxv1.SignalScope]process.Scope{
	sandboxv1.SignalScope_SIGNAL_SCOPE_UNSPECIFIED: process.ScopeTree, sandboxv1.SignalScope_SIGNAL_SCOPE_TREE: process.ScopeTree,
	sandboxv1.SignalScope_SIGNAL_SCOPE_GROUP: process.ScopeGroup, sandboxv1.SignalScope_SIGNAL_SCOPE_PROCESS: process.ScopeProcess,
}

// Signal sends a signal by name.
func (s *processes) Signal(_ context.Context, request *sandboxv1.SignalRequest) (*sandboxv1.SignalResponse, error) {
	p, err := s.find(request.GetId())
	if err != nil {
		return nil, err
	}
	signal, err := process.ParseSignal(request.GetSignal())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	count, err := p.Signal(signal, scopes[request.GetScope()])
	if err != nil {
		return nil, connect.NewError(connect.CodePermissionDenied, err)
	}
	return &sandboxv1.SignalResponse{Signalled: uint32(count)}, nil
}

// WriteStdin writes and half-closes standard input.
func (s *processes) WriteStdin(ctx context.Context, request *sandboxv1.WriteStdinRequest) (*sandboxv1.WriteStdinResponse, error) {
	p, err := s.find(request.GetId())
	if err != nil {
		return nil, err
	}
	if len(request.GetData()) > 0 {
		err = p.Write(ctx, request.GetData())
	}
	if err == nil && request.GetClose() {
		err = p.CloseInput(ctx)
	}
	if err != nil {
		return nil, inputFailure(ctx, err)
	}
	return &sandboxv1.WriteStdinResponse{}, nil
}

func inputFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("standard input: %w", err))
}

// StreamStdin writes messages as they come; each is taken before the next is read, so that a slow process slows the client.
func (s *processes) StreamStdin(ctx context.Context, stream *connect.ClientStream[sandboxv1.StreamStdinRequest]) (*sandboxv1.StreamStdinResponse, error) {
	var p *process.Process
	response, keepOpen := &sandboxv1.StreamStdinResponse{}, false
	for stream.Receive() {
		message := stream.Msg()
		if p == nil {
			var err error
			if p, err = s.find(message.GetId()); err != nil {
				return nil, err
			}
		}
		keepOpen = keepOpen || message.GetKeepOpen()
		if len(message.GetData()) > 0 {
			if err := p.Write(ctx, message.GetData()); err != nil {
				return nil, inputFailure(ctx, err)
			}
		}
		response.BytesWritten += uint64(len(message.GetData()))
	}
	if err := stream.Err(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if p == nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the first message must name the process"))
	}
	if !keepOpen {
		if err := p.CloseInput(ctx); err != nil {
			return nil, inputFailure(ctx, err)
		}
	}
	return response, nil
}

// Resize changes the window size.
func (s *processes) Resize(_ context.Context, request *sandboxv1.ResizeRequest) (*sandboxv1.ResizeResponse, error) {
	p, err := s.find(request.GetId())
	if err != nil {
		return nil, err
	}
	size, err := terminalSize(request.GetSize().GetCols(), request.GetSize().GetRows())
	if err != nil {
		return nil, err
	}
	if err := p.Resize(size); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return &sandboxv1.ResizeResponse{}, nil
}

func describe(p *process.Process) *sandboxv1.Process {
	described := &sandboxv1.Process{
		Id: p.ID, Number: p.Number, Pid: int32(p.Pid), Command: p.Spec.Command, Cwd: p.Spec.Dir, User: p.Spec.User, Tag: p.Spec.Tag,
		Terminal: p.Spec.Terminal != nil, StartedAt: timestamppb.New(p.StartedAt),
	}
	described.OutputStart, described.OutputEnd = p.Log.Bounds()
	if exit, ok := p.Exit(); ok {
		described.Exit = describeExit(exit)
	}
	return described
}

func describeExit(exit process.Exit) *sandboxv1.Exit {
	described := &sandboxv1.Exit{Code: int32(exit.Code), TimedOut: exit.TimedOut, FinishedAt: timestamppb.New(exit.FinishedAt), OutputOffset: exit.OutputOffset}
	if exit.Signal != 0 {
		described.Signal = process.SignalName(exit.Signal)
	}
	return described
}
