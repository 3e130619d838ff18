package sandbox

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"agent-sandbox.dev/sdk/protocol/agentsandbox/v1/agentsandboxv1connect"
	"connectrpc.com/connect"
)

type eventStream = connect.ServerStream[sandboxv1.ProcessEvent]

// scripted is a process service whose streams a test writes.
type scripted struct {
	agentsandboxv1connect.UnimplementedProcessServiceHandler
	start   func(context.Context, *sandboxv1.StartRequest, *eventStream) error
	attach  func(*sandboxv1.AttachRequest, *eventStream) error
	signals chan string
	cancels chan string
}

func (s *scripted) Start(ctx context.Context, request *sandboxv1.StartRequest, stream *eventStream) error {
	return s.start(ctx, request, stream)
}

func (s *scripted) Attach(_ context.Context, request *sandboxv1.AttachRequest, stream *eventStream) error {
	return s.attach(request, stream)
}

func (s *scripted) Signal(_ context.Context, request *sandboxv1.SignalRequest) (*sandboxv1.SignalResponse, error) {
	s.signals <- request.GetSignal()
	return &sandboxv1.SignalResponse{Signalled: 1}, nil
}

func (s *scripted) Cancel(_ context.Context, request *sandboxv1.CancelRequest) (*sandboxv1.CancelResponse, error) {
	s.cancels <- request.GetIdempotencyKey()
	return &sandboxv1.CancelResponse{}, nil
}

func send(stream *eventStream, events ...*sandboxv1.ProcessEvent) error {
	for _, event := range events {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	return nil
}

func cut() error { panic(http.ErrAbortHandler) }

func TestRunCollectsBothStreamsInOrder(t *testing.T) {
	url := processServer(t, &scripted{start: func(_ context.Context, _ *sandboxv1.StartRequest, stream *eventStream) error {
		return send(stream, startedEvent(), stdoutEvent("a", 0), stderrEvent("b", 1), stdoutEvent("c", 2), exitEvent(3))
	}})
	result, err := handleOf(url).Run(t.Context(), "x")
	if err != nil || string(result.Stdout) != "ac" || string(result.Stderr) != "b" || string(result.Combined) != "abc" || result.ExitCode != 3 {
		t.Fatalf("got %+v, %v", result, err)
	}
}

func TestResultCollectsBesidesTheCallersWriters(t *testing.T) {
	url := processServer(t, &scripted{start: func(_ context.Context, _ *sandboxv1.StartRequest, stream *eventStream) error {
		return send(stream, startedEvent(), stdoutEvent("a", 0), stderrEvent("b", 1), exitEvent(0))
	}})
	var stdout, stderr bytes.Buffer
	command := handleOf(url).Shell(t.Context(), "x")
	command.Stdout, command.Stderr = &stdout, &stderr
	result, err := command.Result()
	if err != nil || string(result.Combined) != "ab" || stdout.String() != "a" || stderr.String() != "b" || command.Stdout != &stdout {
		t.Fatalf("got %+v, %v; the writers got %q and %q", result, err, stdout.String(), stderr.String())
	}
}

// endedServer serves a process whose stream breaks off, and a Sandbox with one condition.
func endedServer(t *testing.T, condition, message string) string {
	reached := map[string]any{
		"type": condition, "status": "True", "reason": "Because", "message": message,
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
	_, processes := agentsandboxv1connect.NewProcessServiceHandler(&scripted{
		start: func(_ context.Context, _ *sandboxv1.StartRequest, stream *eventStream) error {
			if err := send(stream, startedEvent(), stdoutEvent("a", 0)); err != nil {
				return err
			}
			return cut()
		},
		attach: func(*sandboxv1.AttachRequest, *eventStream) error {
			return connect.NewError(connect.CodeNotFound, errors.New("no such process"))
		},
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/") {
			writeJSON(w, 200, map[string]any{"metadata": map[string]any{"name": "box", "namespace": "default", "uid": "uid-1"}, "status": map[string]any{"conditions": []any{reached}}})
			return
		}
		processes.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestProcessThatWasKilledForMemoryWithItsSandboxHasAnExitAndTheReason(t *testing.T) {
	box := handleOf(endedServer(t, "OOMKilled", "it reached its memory limit of 150Mi"))
	result, err := box.Run(t.Context(), "x")
	if err != nil || result.ExitCode != 137 || result.Signal != "SIGKILL" || string(result.Stdout) != "a" ||
		result.Reason != "OOMKilled: it reached its memory limit of 150Mi" {
		t.Fatalf("got %+v, %v", result, err)
	}
	err = box.Command(t.Context(), "x").Run()
	if CodeOf(err) != errorcode.CommandFailed || messageOf(err) != "command 'x' was ended by SIGKILL (OOMKilled: it reached its memory limit of 150Mi)" {
		t.Fatalf("got %v", err)
	}
}

func TestAnyOtherEndOfTheContainerIsAnError(t *testing.T) {
	for condition, want := range map[string]*Error{
		"PidLimitReached": {Limit: "PidLimitReached", Message: "the process ended with its sandbox: too many (PidLimitReached)"},
		"ContainerEnded":  {Message: "the process ended with its sandbox: too many"},
		// A full disk ends no sandbox.
		"DiskFull": {Message: "the process ended with its sandbox, which was stopped or restarted"},
	} {
		_, err := handleOf(endedServer(t, condition, "too many")).Run(t.Context(), "x")
		var failure *Error
		if !errors.As(err, &failure) || failure.Code != errorcode.ProcessEnded || failure.Limit != want.Limit || failure.Message != want.Message {
			t.Errorf("%s: got %v", condition, err)
		}
	}
}

func TestStartThatAYoungerDaemonRefusesIsNotRunAgain(t *testing.T) {
	var sent []uint64
	url := processServer(t, &scripted{start: func(_ context.Context, request *sandboxv1.StartRequest, _ *eventStream) error {
		sent = append(sent, request.GetFirstSentMsAgo())
		if len(sent) == 1 {
			return cut()
		}
		return connect.NewError(connect.CodeAborted, errors.New("it may have run"))
	}})
	_, err := handleOf(url).Run(t.Context(), "x")
	if CodeOf(err) != errorcode.ProcessEnded || len(sent) != 2 || sent[0] != 0 || sent[1] < 40 || sent[1] > 5000 {
		t.Fatalf("got %v after %v", err, sent)
	}
}

func TestTheCommandsTimeEndsAlsoWhereItsSandboxSaysNothing(t *testing.T) {
	url := processServer(t, &scripted{start: func(ctx context.Context, _ *sandboxv1.StartRequest, stream *eventStream) error {
		if err := send(stream, startedEvent()); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}})
	command := handleOf(url).Command(t.Context(), "x")
	command.CommandTimeout = 50 * time.Millisecond
	begun := time.Now()
	err := command.Run()
	var failure *ExitError
	if !errors.As(err, &failure) || !failure.TimedOut || failure.ExitCode != 137 || CodeOf(err) != errorcode.CommandTimeout {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestLostStreamIsAttachedBehindTheLastByte(t *testing.T) {
	var asked atomic.Pointer[sandboxv1.AttachRequest]
	url := processServer(t, &scripted{
		start: func(_ context.Context, _ *sandboxv1.StartRequest, stream *eventStream) error {
			if err := send(stream, startedEvent(), stdoutEvent("one", 0)); err != nil {
				return err
			}
			return cut()
		},
		attach: func(request *sandboxv1.AttachRequest, stream *eventStream) error {
			asked.Store(request)
			return send(stream, startedEvent(), stdoutEvent("two", 3), exitEvent(0))
		},
	})
	output, err := handleOf(url).Command(t.Context(), "x").Output()
	if err != nil || string(output) != "onetwo" {
		t.Fatalf("got %q, %v", output, err)
	}
	if request := asked.Load(); request.GetId() != "0123456789abcdef" || request.GetFromOffset() != 3 {
		t.Fatalf("asked for %v", request)
	}
}

func TestStartWithoutAnAnswerIsRepeatedUnderItsKey(t *testing.T) {
	var count atomic.Int32
	keys := make(chan string, 2)
	url := processServer(t, &scripted{start: func(_ context.Context, request *sandboxv1.StartRequest, stream *eventStream) error {
		keys <- request.GetIdempotencyKey()
		if count.Add(1) == 1 {
			return cut()
		}
		return send(stream, startedEvent(), stdoutEvent("once", 0), exitEvent(0))
	}})
	output, err := handleOf(url).Command(t.Context(), "x").Output()
	if err != nil || string(output) != "once" {
		t.Fatalf("got %q, %v", output, err)
	}
	if first, second := <-keys, <-keys; first != second || first == "" {
		t.Fatalf("keys %q and %q", first, second)
	}
}

func TestFailedCommandIsAnExitError(t *testing.T) {
	url := processServer(t, &scripted{start: func(_ context.Context, _ *sandboxv1.StartRequest, stream *eventStream) error {
		return send(stream, startedEvent(), stderrEvent("why\n", 0), exitEvent(2))
	}})
	_, err := handleOf(url).Command(t.Context(), "x").Output()
	var failure *ExitError
	if !errors.As(err, &failure) || failure.ExitCode != 2 || string(failure.Stderr) != "why\n" || CodeOf(err) != errorcode.CommandFailed {
		t.Fatalf("got %v", err)
	}
}

func TestTimeoutHasItsOwnCode(t *testing.T) {
	url := processServer(t, &scripted{start: func(_ context.Context, request *sandboxv1.StartRequest, stream *eventStream) error {
		timedOut := request.GetSpec().GetTimeout().AsDuration() == 1500*time.Millisecond
		exit := &sandboxv1.Exit{Code: 137, Signal: "SIGKILL", TimedOut: timedOut}
		return send(stream, startedEvent(), &sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Exit{Exit: exit}})
	}})
	command := handleOf(url).Command(t.Context(), "x")
	command.CommandTimeout = 1500 * time.Millisecond
	if err := command.Run(); CodeOf(err) != errorcode.CommandTimeout {
		t.Fatalf("got %v", err)
	}
}

func TestCancelledContextKillsTheTree(t *testing.T) {
	service := &scripted{signals: make(chan string, 1), start: func(ctx context.Context, _ *sandboxv1.StartRequest, stream *eventStream) error {
		if err := send(stream, startedEvent()); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	ctx, cancel := context.WithCancel(t.Context())
	command := handleOf(processServer(t, service)).Command(ctx, "x")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := command.Wait(); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if signal := <-service.signals; signal != "SIGKILL" {
		t.Fatalf("got %s", signal)
	}
}

// unanswered is a service that takes starts and never says so.
func unanswered(keys chan<- string) *scripted {
	return &scripted{cancels: make(chan string, 1), start: func(ctx context.Context, request *sandboxv1.StartRequest, _ *eventStream) error {
		keys <- request.GetIdempotencyKey()
		<-ctx.Done()
		return ctx.Err()
	}}
}

func TestCancelBeforeTheStartIsKnownTakesItBack(t *testing.T) {
	keys := make(chan string, 1)
	service := unanswered(keys)
	ctx, cancel := context.WithCancel(t.Context())
	command := handleOf(processServer(t, service)).Command(ctx, "x")
	failure := make(chan error, 1)
	go func() { failure <- command.Run() }()
	key := <-keys
	cancel()
	if err := <-failure; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if cancelled := <-service.cancels; cancelled != key {
		t.Fatalf("cancelled %q, not %q", cancelled, key)
	}
}

func TestStartThatTakesTooLongIsTakenBack(t *testing.T) {
	service := unanswered(make(chan string, 1))
	command := handleOf(processServer(t, service)).Command(t.Context(), "x")
	command.RequestTimeout = 50 * time.Millisecond
	if err := command.Run(); CodeOf(err) != errorcode.RequestTimeout {
		t.Fatalf("got %v", err)
	}
	// The start itself may never have come that far.
	if cancelled := <-service.cancels; cancelled == "" {
		t.Fatal("cancelled without a key")
	}
}

func TestErrorOfTheDaemonIsNotTriedAgain(t *testing.T) {
	var count atomic.Int32
	url := processServer(t, &scripted{start: func(context.Context, *sandboxv1.StartRequest, *eventStream) error {
		count.Add(1)
		return connect.NewError(connect.CodeNotFound, errors.New("no such command"))
	}})
	err := handleOf(url).Command(t.Context(), "x").Run()
	if CodeOf(err) != errorcode.NotFound || messageOf(err) != "no such command" || count.Load() != 1 {
		t.Fatalf("got %v after %d calls", err, count.Load())
	}
}

func TestEmptyCommandIsRefused(t *testing.T) {
	if err := handleOf("http://127.0.0.1:1").Command(t.Context(), "").Run(); CodeOf(err) != errorcode.InvalidArgument {
		t.Fatalf("got %v", err)
	}
}
