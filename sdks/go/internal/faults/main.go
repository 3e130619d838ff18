// Command faults makes the calls of test/faults with this SDK: orders come as lines on standard input, see its protocol.ts.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	sandbox "agent-sandbox.dev/sdk"
)

const (
	requestLimit  = 20 * time.Second
	commandLimit  = 20 * time.Second
	answerLimit   = 6 * time.Second
	waitLimit     = 5 * time.Second
	fileLimit     = 20 * time.Second
	silentPort    = 7777
	deadRouterURL = "http://127.0.0.1:1"
	pieceBytes    = 64 << 10
	// slowPieces of a download are read slowly, so that it is under way when something is killed.
	slowPieces = 100
)

type order struct {
	ID      int    `json:"id"`
	Phase   string `json:"phase"`
	Sandbox string `json:"sandbox"`
}

type outcome struct {
	Kind string `json:"kind"`
	Code string `json:"code,omitempty"`
	Text string `json:"text"`
}

type call func(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error)

var calls = map[string]call{
	"recovered": recovered, "connecting": connecting, "unanswered": unanswered, "streaming": streaming, "memory": memory, "idle": idle,
	"tunnel": idle, "upload": upload, "download": download, "wait": wait,
}

func shell(ctx context.Context, box *sandbox.Sandbox, script string) *sandbox.Cmd {
	command := box.Shell(ctx, script)
	command.RequestTimeout, command.CommandTimeout = requestLimit, commandLimit
	return command
}

func recovered(ctx context.Context, box *sandbox.Sandbox, _ func()) (string, error) {
	printed, err := shell(ctx, box, "cat /var/tmp/ran 2>/dev/null | wc -l").Output()
	return strings.TrimSpace(string(printed)), err
}

func connecting(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error) {
	reached()
	done, err := shell(ctx, box, "echo x >> /var/tmp/ran; echo back").Result()
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(fmt.Sprintf("exit %d %s%s", done.ExitCode, done.Reason, done.Stdout)), nil
}

func unanswered(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	client, base, err := box.Port(silentPort)
	if err != nil {
		return "", err
	}
	time.AfterFunc(300*time.Millisecond, reached)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	return fmt.Sprintf("status %d", answer.StatusCode), nil
}

// firstWrite tells of the first byte.
type firstWrite struct{ reached func() }

func (w firstWrite) Write(data []byte) (int, error) {
	w.reached()
	return len(data), nil
}

func streaming(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error) {
	command := shell(ctx, box, "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo tick; sleep 0.1; done; exit 7")
	command.Stdout = firstWrite{reached}
	return ended(command, command.Run())
}

func memory(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error) {
	hog := "b = []; print('begins', flush=True)\nwhile True: b.append(bytearray(4 << 20))"
	command := box.Command(ctx, "python3", "-c", hog)
	command.CommandTimeout, command.Stdout = commandLimit, firstWrite{reached}
	return ended(command, command.Run())
}

func idle(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error) {
	command := box.Command(ctx, "sh", "-c", "sleep 6; exit 7")
	command.RequestTimeout, command.CommandTimeout = requestLimit, commandLimit
	if err := command.Start(); err != nil {
		return "", err
	}
	reached()
	return ended(command, command.Wait())
}

// ended is the end of a command as the other languages report it: an exit code is no error.
func ended(command *sandbox.Cmd, err error) (string, error) {
	var failed *sandbox.ExitError
	if err != nil && (!errors.As(err, &failed) || failed.TimedOut) {
		return "", err
	}
	status := command.ExitStatus
	return strings.TrimSpace(fmt.Sprintf("exit %d %s", status.ExitCode, status.Reason)), nil
}

// slowSource gives a hundred pieces, one every 50 ms.
type slowSource struct {
	pieces  int
	reached func()
}

func (s *slowSource) Read(into []byte) (int, error) {
	if s.pieces == 100 {
		return 0, io.EOF
	}
	if s.pieces++; s.pieces > 5 {
		s.reached()
	}
	time.Sleep(50 * time.Millisecond)
	return min(len(into), pieceBytes), nil
}

func upload(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fileLimit)
	defer cancel()
	err := box.Files().WriteFrom(ctx, "/tmp/up", &slowSource{reached: reached}, sandbox.WriteFileOptions{})
	return "written", err
}

func download(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fileLimit)
	defer cancel()
	content, err := box.Files().ReadStream(ctx, "/tmp/big")
	if err != nil {
		return "", err
	}
	defer content.Close()
	piece, size := make([]byte, pieceBytes), 0
	for pieces := 0; ; pieces++ {
		read, err := content.Read(piece)
		size += read
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Sprintf("%d bytes", size), nil
		case err != nil:
			return "", err
		}
		reached()
		if pieces < slowPieces {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func wait(ctx context.Context, box *sandbox.Sandbox, reached func()) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	time.AfterFunc(300*time.Millisecond, reached)
	info, err := box.WaitFor(ctx, "suspended")
	if err != nil {
		return "", err
	}
	return info.State, nil
}

func outcomeOf(text string, err error) outcome {
	switch {
	case err == nil:
		return outcome{Kind: "result", Text: text}
	case sandbox.CodeOf(err) != "":
		return outcome{Kind: "error", Code: string(sandbox.CodeOf(err)), Text: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{Kind: "timeout", Text: err.Error()}
	}
	return outcome{Kind: "untyped", Text: fmt.Sprintf("%T: %v", err, err)}
}

var printing sync.Mutex

func say(report map[string]any) {
	printing.Lock()
	defer printing.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(report)
}

func carryOut(asked order, engines map[bool]*sandbox.Engine) {
	var once sync.Once
	reached := func() { once.Do(func() { say(map[string]any{"id": asked.ID, "at": "phase"}) }) }
	ctx := context.Background()
	var text string
	box, err := sandbox.Get(ctx, asked.Sandbox, sandbox.WithEngine(engines[asked.Phase == "tunnel"]))
	if err == nil {
		text, err = calls[asked.Phase](ctx, box, reached)
	}
	say(map[string]any{"id": asked.ID, "at": "end", "outcome": outcomeOf(text, err)})
}

func main() {
	engines := map[bool]*sandbox.Engine{}
	for routerless, url := range map[bool]string{true: deadRouterURL, false: ""} {
		engine, err := sandbox.FindEngine(sandbox.EngineOptions{RouterURL: url})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		engines[routerless] = engine
	}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var asked order
		if err := json.Unmarshal(orders.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go carryOut(asked, engines)
	}
}
