package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	healthv1 "agent-sandbox.dev/native/internal/gen/grpc/health/v1"
	"agent-sandbox.dev/native/internal/gen/grpc/health/v1/healthv1connect"
	processv1 "agent-sandbox.dev/native/internal/gen/process/v1"
	watcherv1 "agent-sandbox.dev/native/internal/gen/watcher/v1"
	"agent-sandbox.dev/native/internal/gen/watcher/v1/watcherv1connect"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

func sh(script string) *processv1.ProcessConfig {
	return &processv1.ProcessConfig{Command: []string{"/bin/sh", "-c", script}}
}

func (w *world) execute(config *processv1.ProcessConfig) (*processv1.ExecuteResponse, error) {
	return w.published.Execute(w.t.Context(), &processv1.ExecuteRequest{Config: config})
}

func TestPublishedExecute(t *testing.T) {
	w := newWorld(t)
	os.Mkdir(w.root+"/sub", 0o755)
	config := sh("echo $GREETING; pwd; echo err >&2; exit 3")
	config.EnvVars, config.Cwd = map[string]string{"GREETING": "hi"}, proto.String("/sub")
	got, err := w.execute(config)
	if err != nil || got.ExitCode != 3 || string(got.Stdout) != "hi\n"+w.root+"/sub\n" || string(got.Stderr) != "err\n" {
		t.Errorf("%v %v", got, err)
	}
	if got, _ = w.execute(sh("kill -9 $$")); got.GetExitCode() != 137 {
		t.Errorf("signal death is %d", got.GetExitCode())
	}
	if got, _ = w.execute(sh("pwd")); string(got.GetStdout()) != w.root+"\n" {
		t.Errorf("default directory %q", got.GetStdout())
	}
	_, err = w.execute(nil)
	expectCode(t, err, connect.CodeInvalidArgument, "command is required")
	_, err = w.execute(&processv1.ProcessConfig{Command: []string{"ls"}, Cwd: proto.String("../..")})
	expectCode(t, err, connect.CodePermissionDenied, "cwd: ")
	_, err = w.execute(&processv1.ProcessConfig{Command: []string{"no-such-program"}})
	expectCode(t, err, connect.CodeNotFound, "failed to execute command: command or path not found: ")
	_, err = w.execute(&processv1.ProcessConfig{Command: []string{"ls"}, Cwd: proto.String("missing")})
	expectCode(t, err, connect.CodeNotFound, "command or path not found")
	w.write("plain", "x")
	_, err = w.execute(&processv1.ProcessConfig{Command: []string{"./plain"}})
	expectCode(t, err, connect.CodePermissionDenied, "permission denied")
}

func TestPublishedExecuteFitsADefaultClient(t *testing.T) {
	w := newWorld(t)
	got, err := w.execute(sh("head -c 9000000 /dev/zero; head -c 3000000 /dev/zero >&2"))
	if err != nil || proto.Size(got) >= 4<<20 || !strings.Contains(string(got.Stderr), "output truncated") {
		t.Fatalf("size %d: %v", proto.Size(got), err)
	}
	got, err = w.execute(sh("head -c 3500000 /dev/zero"))
	if err != nil || len(got.Stdout) != 3500000 || len(got.Stderr) != 0 {
		t.Fatalf("%d bytes: %v", len(got.GetStdout()), err)
	}
}

func TestPublishedDeadlineKillsTheTree(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := w.published.Execute(ctx, &processv1.ExecuteRequest{Config: sh("sh -c 'echo $$ > pid; sleep 1000' & wait")})
	expectCode(t, err, connect.CodeDeadlineExceeded, "")
	expectProcessGone(t, w.read("pid"))
}

func expectProcessGone(t *testing.T, pid string) {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(number) + "/stat")
		if err != nil || strings.Contains(string(status), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the process survived")
		}
	}
}

func TestPublishedStart(t *testing.T) {
	w := newWorld(t)
	stream, err := w.published.Start(t.Context(), &processv1.StartRequest{Config: sh("cat; echo err 1>&2; exit 7")})
	if err != nil || !stream.Receive() || stream.Msg().GetInit() == nil {
		t.Fatalf("first event %v: %v", stream.Msg(), err)
	}
	id := stream.Msg().GetInit().GetProcessId()
	input := func(request *processv1.WriteStdinRequest) error {
		request.ProcessId = id
		_, err := w.published.WriteStdin(t.Context(), request)
		return err
	}
	if err := input(&processv1.WriteStdinRequest{Payload: &processv1.WriteStdinRequest_Input{Input: []byte("typed")}}); err != nil {
		t.Fatal(err)
	}
	if err := input(&processv1.WriteStdinRequest{}); err != nil {
		t.Errorf("no payload: %v", err)
	}
	_, err = w.published.ResizeTTY(t.Context(), &processv1.ResizeTTYRequest{ProcessId: id, Cols: 10, Rows: 10})
	expectCode(t, err, connect.CodeFailedPrecondition, "failed to resize TTY: process is completed or has no active PTY")
	_, err = w.published.SendSignal(t.Context(), &processv1.SendSignalRequest{ProcessId: id})
	expectCode(t, err, connect.CodeInvalidArgument, "unsupported or unspecified signal: SIGNAL_UNSPECIFIED")
	eof := &processv1.WriteStdinRequest{Payload: &processv1.WriteStdinRequest_Eof{Eof: &emptypb.Empty{}}}
	if err := input(eof); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr string
	var last *processv1.StartResponse
	for stream.Receive() {
		last = stream.Msg()
		stdout += string(last.GetStdout())
		stderr += string(last.GetStderr())
	}
	if stream.Err() != nil || stdout != "typed" || stderr != "err\n" || last.GetExit().GetExitCode() != 7 {
		t.Errorf("%q %q %v: %v", stdout, stderr, last, stream.Err())
	}
	for deadline := time.Now().Add(2 * time.Second); w.server.options.Registry.GetNumber(id) != nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	expectCode(t, input(eof), connect.CodeNotFound, "not found")
}

func TestPublishedTerminalSignalAndDisconnect(t *testing.T) {
	w := newWorld(t)
	stream, err := w.published.Start(t.Context(), &processv1.StartRequest{Config: &processv1.ProcessConfig{Command: []string{"stty", "size"}}, Pty: &processv1.PTY{Cols: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	var text string
	for stream.Receive() {
		text += string(stream.Msg().GetStdout())
	}
	if text != "24 80\r\n" {
		t.Errorf("size %q", text)
	}
	stream, _ = w.published.Start(t.Context(), &processv1.StartRequest{Config: sh("sleep 1000")})
	stream.Receive()
	if _, err := w.published.SendSignal(t.Context(), &processv1.SendSignalRequest{ProcessId: stream.Msg().GetInit().GetProcessId(), Signal: processv1.Signal_SIGNAL_SIGTERM}); err != nil {
		t.Fatal(err)
	}
	stream.Receive()
	if code := stream.Msg().GetExit().GetExitCode(); code != 143 {
		t.Errorf("exit %d", code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stream, _ = w.published.Start(ctx, &processv1.StartRequest{Config: sh("echo $$ > pid; echo up; sleep 1000")})
	for stream.Receive() && stream.Msg().GetStdout() == nil {
	}
	cancel()
	expectProcessGone(t, w.read("pid"))
}

func TestPublishedStartLosesNothingToASlowClient(t *testing.T) {
	w := newWorld(t)
	stream, err := w.published.Start(t.Context(), &processv1.StartRequest{Config: sh("head -c 5000000 /dev/zero")})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i := 0; stream.Receive(); i++ {
		total += len(stream.Msg().GetStdout())
		if i < 20 {
			time.Sleep(30 * time.Millisecond)
		}
	}
	if total != 5000000 || stream.Err() != nil {
		t.Fatalf("%d bytes: %v", total, stream.Err())
	}
}

// R18: the promised watch works.
func TestPublishedWatch(t *testing.T) {
	w := newWorld(t)
	client := watcherv1connect.NewFileWatcherServiceClient(w.grpc, w.url, connect.WithGRPC())
	stream, err := client.WatchDir(t.Context(), &watcherv1.WatchDirRequest{Path: ".", Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	w.write("new/file", "x")
	seen := ""
	for stream.Receive() {
		seen += stream.Msg().GetType().String() + " " + stream.Msg().GetPath() + "\n"
		if strings.Contains(seen, "CREATE new/file\n") {
			break
		}
	}
	if !strings.Contains(seen, "FILE_EVENT_TYPE_CREATE new\n") {
		t.Errorf("%s %v", seen, stream.Err())
	}
	bad, _ := client.WatchDir(t.Context(), &watcherv1.WatchDirRequest{Path: "../"})
	bad.Receive()
	expectCode(t, bad.Err(), connect.CodePermissionDenied, "")
}

// R17: shutting down refuses new work and ends what is open.
func TestShutdownEndsStreams(t *testing.T) {
	w := newWorld(t)
	stream, err := w.published.Start(t.Context(), &processv1.StartRequest{Config: sh("exec sleep 1000")})
	if err != nil || !stream.Receive() {
		t.Fatal(err)
	}
	began := time.Now()
	w.stop()
	stream.Receive()
	if code := stream.Msg().GetExit().GetExitCode(); code != 143 {
		t.Errorf("exit %d: %v", code, stream.Err())
	}
	if err := <-w.done; err != nil || time.Since(began) > 1500*time.Millisecond {
		t.Errorf("ended after %v: %v", time.Since(began), err)
	}
	w.done <- nil
}

func spec(script string) *sandboxv1.ProcessSpec {
	return &sandboxv1.ProcessSpec{Command: []string{"/bin/sh", "-c", script}}
}

func (w *world) detach(spec *sandboxv1.ProcessSpec) string {
	w.t.Helper()
	stream, err := w.processes.Start(w.t.Context(), &sandboxv1.StartRequest{Spec: spec, Detach: true})
	if err != nil || !stream.Receive() {
		w.t.Fatalf("start: %v %v", err, stream.Err())
	}
	defer stream.Close()
	return stream.Msg().GetStarted().GetId()
}

// attach follows a process and returns its whole output, the bytes that were dropped, and its exit.
func (w *world) attach(id string, from uint64) (text string, dropped uint64, exit *sandboxv1.Exit) {
	w.t.Helper()
	stream, err := w.processes.Attach(w.t.Context(), &sandboxv1.AttachRequest{Id: id, FromOffset: from})
	if err != nil {
		w.t.Fatal(err)
	}
	for stream.Receive() {
		event := stream.Msg()
		text += string(event.GetStdout().GetData()) + string(event.GetStderr().GetData())
		dropped += event.GetDropped().GetToOffset() - event.GetDropped().GetFromOffset()
		if event.GetExit() != nil {
			exit = event.GetExit()
		}
	}
	if stream.Err() != nil {
		w.t.Fatal(stream.Err())
	}
	return text, dropped, exit
}

// R2: a lost connection costs neither the process nor its output.
func TestInvariantDaemonOutlivesItsClients(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := w.processes.Start(ctx, &sandboxv1.StartRequest{Spec: spec("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 5")})
	if err != nil || !stream.Receive() {
		t.Fatal(err)
	}
	id := stream.Msg().GetStarted().GetId()
	for stream.Receive() && stream.Msg().GetStdout() == nil {
	}
	cancel()
	w.write("go", "")
	text, dropped, exit := w.attach(id, 4)
	if text != "two\n" || dropped != 0 || exit.GetCode() != 5 {
		t.Errorf("%q %d %v", text, dropped, exit)
	}
	if text, _, _ = w.attach(id, 0); text != "one\ntwo\n" {
		t.Errorf("replay %q", text)
	}
	_, err = w.processes.Get(t.Context(), &sandboxv1.GetRequest{Id: "nobody"})
	expectCode(t, err, connect.CodeNotFound, "nobody")
}

func TestDroppedOutputIsTold(t *testing.T) {
	w := newWorld(t)
	s := spec("head -c 1000000 /dev/zero")
	s.OutputBufferBytes = 100_000
	id := w.detach(s)
	w.processes.Wait(t.Context(), &sandboxv1.WaitRequest{Id: id})
	text, dropped, _ := w.attach(id, 0)
	if dropped == 0 || uint64(len(text))+dropped != 1000000 {
		t.Errorf("%d kept, %d dropped", len(text), dropped)
	}
}

func TestListWaitSignalAndStdin(t *testing.T) {
	w := newWorld(t)
	s := spec("trap 'exit 9' USR1; cat > got; echo ready; while :; do sleep 0.02; done")
	s.Stdin, s.Tag = true, "worker"
	id := w.detach(s)
	listed, err := w.processes.List(t.Context(), &sandboxv1.ListRequest{RunningOnly: true})
	if err != nil || len(listed.GetProcesses()) != 1 || listed.GetProcesses()[0].GetTag() != "worker" {
		t.Fatalf("%v %v", listed, err)
	}
	waited, err := w.processes.Wait(t.Context(), &sandboxv1.WaitRequest{Id: id, Timeout: durationpb.New(20 * time.Millisecond)})
	if err != nil || waited.GetProcess().GetExit() != nil {
		t.Fatalf("%v %v", waited, err)
	}
	input, err := w.processes.StreamStdin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"a", "b", "c"} {
		message := &sandboxv1.StreamStdinRequest{Data: []byte(text)}
		if i == 0 {
			message.Id = id
		}
		if err := input.Send(message); err != nil {
			t.Fatal(err)
		}
	}
	if response, err := input.CloseAndReceive(); err != nil || response.GetBytesWritten() != 3 {
		t.Fatalf("%v %v", response, err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got, _ := w.processes.Get(t.Context(), &sandboxv1.GetRequest{Id: id}); got.GetProcess().GetOutputEnd() == 6 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("standard input was not closed")
		}
	}
	if w.read("got") != "abc" {
		t.Errorf("input %q", w.read("got"))
	}
	if _, err := w.processes.Signal(t.Context(), &sandboxv1.SignalRequest{Id: id, Signal: "USR1", Scope: sandboxv1.SignalScope_SIGNAL_SCOPE_PROCESS}); err != nil {
		t.Fatal(err)
	}
	waited, _ = w.processes.Wait(t.Context(), &sandboxv1.WaitRequest{Id: id})
	if waited.GetProcess().GetExit().GetCode() != 9 {
		t.Errorf("%v", waited)
	}
	_, err = w.processes.Signal(t.Context(), &sandboxv1.SignalRequest{Id: id, Signal: "NOPE"})
	expectCode(t, err, connect.CodeInvalidArgument, "NOPE")
}

func TestCancelTakesAStartBack(t *testing.T) {
	w := newWorld(t)
	_, err := w.processes.Cancel(t.Context(), &sandboxv1.CancelRequest{})
	expectCode(t, err, connect.CodeInvalidArgument, "idempotency_key is required")
	answer, err := w.processes.Cancel(t.Context(), &sandboxv1.CancelRequest{IdempotencyKey: "early"})
	if err != nil || answer.GetId() != "" {
		t.Errorf("%v %v", answer, err)
	}
	stream, err := w.processes.Start(t.Context(), &sandboxv1.StartRequest{Spec: &sandboxv1.ProcessSpec{Command: []string{"true"}}, IdempotencyKey: "early"})
	if err == nil {
		defer stream.Close()
		stream.Receive()
		err = stream.Err()
	}
	expectCode(t, err, connect.CodeAborted, "cancelled before it began")
	_, err = w.processes.Run(t.Context(), &sandboxv1.RunRequest{Spec: &sandboxv1.ProcessSpec{Command: []string{"no-such-program"}}})
	expectCode(t, err, connect.CodeNotFound, "; use an image that has it, or name it by its path")
}

func TestRun(t *testing.T) {
	w := newWorld(t)
	run := func(request *sandboxv1.RunRequest) *sandboxv1.RunResponse {
		t.Helper()
		response, err := w.processes.Run(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	got := run(&sandboxv1.RunRequest{Spec: spec("cat; head -c 100 /dev/zero >&2"), Stdin: []byte("input"), OutputBytesMax: 10})
	if string(got.Stdout) != "input" || len(got.Stderr) != 10 || got.StderrDroppedBytes != 90 {
		t.Errorf("%v", got)
	}
	timed := spec("echo partial; sleep 1000")
	timed.Timeout = durationpb.New(100 * time.Millisecond)
	if got = run(&sandboxv1.RunRequest{Spec: timed}); !got.Exit.TimedOut || got.Exit.Signal != "SIGKILL" || string(got.Stdout) != "partial\n" {
		t.Errorf("%v", got)
	}
	for range 2 {
		got = run(&sandboxv1.RunRequest{Spec: spec("echo x >> count; cat count"), IdempotencyKey: "once"})
		if string(got.Stdout) != "x\n" {
			t.Errorf("%q", got.Stdout)
		}
	}
}

func TestFileService(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.write("src/a.txt", "needle here\n")
	stat, err := w.files.Stat(ctx, &sandboxv1.StatRequest{Path: "src/a.txt"})
	if err != nil || stat.GetFile().GetPath() != w.root+"/src/a.txt" || stat.GetFile().GetSizeBytes() != 12 {
		t.Fatalf("%v %v", stat, err)
	}
	if _, err := w.files.Copy(ctx, &sandboxv1.CopyRequest{From: "src", To: "dst", Recursive: true}); err != nil {
		t.Error(err)
	}
	_, err = w.files.Move(ctx, &sandboxv1.MoveRequest{From: "dst", To: "src"})
	expectCode(t, err, connect.CodeAlreadyExists, "")
	globbed, err := w.files.Glob(ctx, &sandboxv1.GlobRequest{Pattern: "**/*.txt"})
	if err != nil || len(globbed.GetFiles()) != 2 {
		t.Errorf("%v %v", globbed, err)
	}
	sum, err := w.files.Checksum(ctx, &sandboxv1.ChecksumRequest{Path: "src/a.txt"})
	if err != nil || len(sum.GetDigest()) != 64 {
		t.Errorf("%v %v", sum, err)
	}
	found, err := w.files.Search(ctx, &sandboxv1.SearchRequest{Path: "src", Pattern: "needle"})
	if err != nil || !found.Receive() || found.Msg().GetMatch().GetLine() != 1 || !found.Receive() || found.Msg().GetSummary().GetMatches() != 1 {
		t.Errorf("%v %v", found.Msg(), err)
	}
	made, err := w.files.MakeDir(ctx, &sandboxv1.MakeDirRequest{Path: "x/y", Parents: true, Mode: 0o700})
	if err != nil || made.GetFile().GetMode() != 0o700 {
		t.Errorf("%v %v", made, err)
	}
	changed, err := w.files.SetAttributes(ctx, &sandboxv1.SetAttributesRequest{Path: "x/y", Mode: proto.Uint32(0o750)})
	if err != nil || changed.GetFile().GetMode() != 0o750 {
		t.Errorf("%v %v", changed, err)
	}
	_, err = w.files.Remove(ctx, &sandboxv1.RemoveRequest{Path: "x"})
	expectCode(t, err, connect.CodeFailedPrecondition, "not empty")
	if _, err := w.files.Remove(ctx, &sandboxv1.RemoveRequest{Path: "none", MissingOk: true}); err != nil {
		t.Error(err)
	}
	page, err := w.files.List(ctx, &sandboxv1.ListFilesRequest{Path: ".", Depth: 5, PageSize: 2})
	if err != nil || len(page.GetFiles()) != 2 || page.GetNextPageToken() == "" {
		t.Errorf("%v %v", page, err)
	}
}

func TestFileServiceNamesThatAreNotText(t *testing.T) {
	w := newWorld(t)
	odd := "b\xff c"
	for _, name := range []string{"a", odd + "/inner", "z"} {
		w.write(name, name)
	}
	var names []string
	var raw [][]byte
	for token := ""; ; {
		page, err := w.files.List(t.Context(), &sandboxv1.ListFilesRequest{Path: ".", Depth: 2, PageSize: 1, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range page.GetFiles() {
			names = append(names, file.GetName())
			raw = append(raw, file.GetRawPath())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if got := strings.Join(names, ","); got != "a,b\uFFFD c,inner,z" {
		t.Fatalf("listed %q", got)
	}
	if len(raw[0]) != 0 || !strings.HasSuffix(string(raw[1]), odd) || !strings.HasSuffix(string(raw[2]), odd+"/inner") {
		t.Errorf("raw paths %q", raw)
	}
	if _, err := w.files.Stat(t.Context(), &sandboxv1.StatRequest{RawPath: raw[2]}); err != nil {
		t.Error(err)
	}
	if _, err := w.files.Move(t.Context(), &sandboxv1.MoveRequest{RawFrom: raw[2], To: "plain"}); err != nil {
		t.Error(err)
	}
	_, err := w.files.List(t.Context(), &sandboxv1.ListFilesRequest{Path: ".", PageToken: "%zz"})
	expectCode(t, err, connect.CodeInvalidArgument, "page_token")
}

func TestFileServiceWatchBeginsWithReady(t *testing.T) {
	w := newWorld(t)
	stream, err := w.files.Watch(t.Context(), &sandboxv1.WatchRequest{Path: "."})
	if err != nil || !stream.Receive() || stream.Msg().GetType() != sandboxv1.WatchEventType_WATCH_EVENT_TYPE_READY {
		t.Fatalf("%v %v", stream.Msg(), err)
	}
	w.write("f", "x")
	if !stream.Receive() || stream.Msg().GetPath() != w.root+"/f" {
		t.Errorf("%v %v", stream.Msg(), stream.Err())
	}
}

func TestGrpcHealth(t *testing.T) {
	w := newWorld(t)
	got, err := healthv1connect.NewHealthClient(w.grpc, w.url, connect.WithGRPC()).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("%v %v", got, err)
	}
}

func TestPlainHttpSpeaksConnectAndGrpcWeb(t *testing.T) {
	w := newWorld(t)
	w.expect(w.request("POST", "/process.v1.ProcessService/Execute", `{"config":{"command":["echo","hi"]}}`, "Content-Type", "application/json"), 200, `"stdout":"aGkK"`)
	message, _ := proto.Marshal(&processv1.ExecuteRequest{Config: sh("echo hi")})
	framed := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	got := w.request("POST", "/process.v1.ProcessService/Execute", string(framed), "Content-Type", "application/grpc-web+proto")
	if got.status != 200 || !bytes.Contains([]byte(got.body), []byte("hi\n")) || !strings.Contains(got.body, "grpc-status: 0") {
		t.Errorf("%d %q", got.status, got.body)
	}
}

func TestReaderErrorsAreNotEndOfFile(t *testing.T) {
	body := &trackedBody{Reader: io.MultiReader(strings.NewReader("x"), brokenReader{})}
	io.ReadAll(body)
	if body.err == nil {
		t.Error("a broken body went unnoticed")
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }
