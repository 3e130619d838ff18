package sandbox

import (
	"context"
	"errors"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"agent-sandbox.dev/sdk/protocol/agentsandbox/v1/agentsandboxv1connect"
	"connectrpc.com/connect"
)

// eventSource follows a process across lost connections. A start whose answer was lost is repeated under the same key,
// which the sandbox answers with the process that it started the first time; later losses attach behind the last byte
// seen. So no command ever runs twice, and no output is passed on twice. A process ends with its container: for memory, it has the exit
// that SIGKILL gives and the reason; any other cause is a `process-ended`.
type eventSource struct {
	client agentsandboxv1connect.ProcessServiceClient
	spec   *sandboxv1.ProcessSpec
	key    string
	// service keeps the process running under a name.
	service  string
	attachID string
	offset   uint64
	// findEnd finds the end of the sandbox's containers since a moment.
	findEnd func(ctx context.Context, since time.Time, kind endKind) *containerEnd
	// commandTimeout is the command's own limit; zero: none.
	commandTimeout time.Duration
	// reason is why the process was killed, where its container was, for memory.
	reason string

	hasStarted bool
	attempts   int
	since      time.Time
	lostSince  time.Time
	// firstSent is when the first start was sent that may have been carried out.
	firstSent time.Time
	// endsAt is when the command's own time is up.
	endsAt time.Time
}

const (
	// Eight attempts, doubling from 50 ms, span some twelve seconds: longer than a router takes to start again.
	followAttemptsMax = 8
	followPauseFirst  = 50 * time.Millisecond
	// attachLimit: a router holds who attaches to a sandbox that starts again; then the sandbox's conditions are looked at again.
	attachLimit = 5 * time.Second
	// lostLimit: however attempts fail, they end this long after the connection was lost.
	lostLimit = 30 * time.Second
	// commandGrace: the sandbox kills a command whose time is up by itself; its exit is not waited for longer than this.
	commandGrace = 2 * time.Second
)

var (
	errExited = errors.New("the process has exited")
	// errOverdue ends a wait for a sandbox that does not report the end of a command whose time is up.
	errOverdue = errors.New("the command's time is up")
)

func (s *eventSource) follow(ctx context.Context, take func(*sandboxv1.ProcessEvent) error) error {
	s.since = time.Now()
	for {
		sent := time.Now()
		err := s.stream(ctx, take)
		if errors.Is(err, errExited) {
			return nil
		}
		if errors.Is(err, errOverdue) || s.isOverdue() {
			return takeKilled(take, true)
		}
		if err := s.afterFailure(ctx, err, sent); errors.Is(err, errExited) {
			return takeKilled(take, false)
		} else if err != nil {
			return err
		}
	}
}

func (s *eventSource) isOverdue() bool {
	return !s.endsAt.IsZero() && time.Since(s.endsAt) > commandGrace
}

// takeKilled hands on the exit of a process that was killed and cannot say so.
func takeKilled(take func(*sandboxv1.ProcessEvent) error, timedOut bool) error {
	exit := &sandboxv1.Exit{Code: 137, Signal: "SIGKILL", TimedOut: timedOut}
	return take(&sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Exit{Exit: exit}})
}

// afterFailure waits for the next attempt. It returns errExited where the process was killed for memory with its sandbox.
func (s *eventSource) afterFailure(ctx context.Context, err error, sent time.Time) error {
	mayFollowAgain := isUnanswered(err)
	isGone := s.hasStarted && CodeOf(err) == errorcode.NotFound
	// A daemon that is younger than the first start refuses the repeated one.
	if !s.hasStarted && !s.firstSent.IsZero() {
		isGone = CodeOf(err) == errorcode.Conflict
	}
	if ctx.Err() != nil || !isGone && !mayFollowAgain {
		return err
	}
	s.attempts++
	if s.lostSince.IsZero() {
		s.lostSince = time.Now()
	}
	if !s.hasStarted && s.firstSent.IsZero() && !isUnsent(err) {
		s.firstSent = sent
	}
	if end := s.end(ctx, isGone); isGone || end != nil {
		return s.endedWith(end, err)
	}
	if s.attempts > followAttemptsMax || time.Since(s.lostSince) > lostLimit {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(followPauseFirst << (s.attempts - 1)):
		return nil
	}
}

func (s *eventSource) end(ctx context.Context, isGone bool) *containerEnd {
	kind := endLost
	if isGone {
		kind = endGone
	}
	// Whether a start was carried out is the daemon's to say: an end before it must not be taken for its own.
	if !s.hasStarted && !isGone {
		return nil
	}
	return s.findEnd(ctx, s.since, kind)
}

// isUnanswered says whether no answer came, or it broke off. A start has its key and the other calls change nothing twice, so that all
// are safe to repeat.
func isUnanswered(err error) bool {
	return CodeOf(err) == errorcode.ConnectionLost || CodeOf(err) == errorcode.Unavailable
}

// isUnsent says whether an error proves that no sandbox has seen the request.
func isUnsent(err error) bool {
	var own *Error
	return isUnreachable(err) || errors.As(err, &own) && own.unsent
}

// endedWith is how a process ends with its sandbox, which was stopped, perhaps by a limit, and perhaps started again.
func (s *eventSource) endedWith(end *containerEnd, err error) error {
	if s.hasStarted && end != nil && end.limit == "OOMKilled" {
		s.reason = end.limit + ": " + end.message
		return errExited
	}
	what, why, limit := "the process ended", ", which was stopped or restarted", ""
	if !s.hasStarted {
		what = "the command may have begun, and ended"
	}
	if end != nil {
		why, limit = ": "+end.message, end.limit
		if limit != "" {
			why += " (" + limit + ")"
		}
	}
	return &Error{Code: errorcode.ProcessEnded, Message: what + " with its sandbox" + why, Limit: limit, Err: err}
}

// takeError is an error of the one who takes events, which no new connection mends.
type takeError struct{ error }

func (s *eventSource) stream(ctx context.Context, take func(*sandboxv1.ProcessEvent) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.hasStarted {
		defer time.AfterFunc(attachLimit, func() {
			cancel(newError(errorcode.ConnectionLost, "the sandbox did not answer in %s", attachLimit))
		}).Stop()
	}
	stream, err := s.open(ctx)
	if err != nil {
		return callError(ctx, err)
	}
	defer stream.Close()
	for s.receive(stream, cancel) {
		s.attempts, s.lostSince = 0, time.Time{}
		if err := s.pass(stream.Msg(), take); err != nil {
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

// receive waits for the next event. Of a command whose time is up it waits for commandGrace; what its reader takes does not count.
func (s *eventSource) receive(stream *connect.ServerStreamForClient[sandboxv1.ProcessEvent], cancel context.CancelCauseFunc) bool {
	if !s.endsAt.IsZero() {
		wait := max(time.Until(s.endsAt), 0) + commandGrace
		defer time.AfterFunc(wait, func() { cancel(errOverdue) }).Stop()
	}
	return stream.Receive()
}

func (s *eventSource) open(ctx context.Context) (*connect.ServerStreamForClient[sandboxv1.ProcessEvent], error) {
	if s.attachID != "" {
		return s.client.Attach(ctx, &sandboxv1.AttachRequest{Id: s.attachID, FromOffset: s.offset})
	}
	request := &sandboxv1.StartRequest{Spec: s.spec, IdempotencyKey: s.key, Service: s.service}
	if !s.firstSent.IsZero() {
		request.FirstSentMsAgo = uint64(time.Since(s.firstSent).Milliseconds())
	}
	return s.client.Start(ctx, request)
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
		if s.commandTimeout > 0 {
			s.endsAt = time.Now().Add(s.commandTimeout)
		}
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
