package legacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agent-sandbox.dev/native/internal/process"
)

// requestBytesMax bounds a command line with its JSON around it; far more than the kernel takes as arguments.
const requestBytesMax = 8 << 20

// outputBytesMax bounds each stream of a reply, which is held in memory.
const outputBytesMax = 32 << 20

// timeoutExitCode is what timeout(1) answers too.
const timeoutExitCode = 124

type executeRequest struct {
	Command *string `json:"command"`
	// TimeoutSeconds, when given, makes a timeout a result of its own instead of a failure.
	TimeoutSeconds *float64 `json:"timeout_seconds"`
	// Shell runs the command by /bin/sh -c.
	Shell bool `json:"shell"`
}

type executeReply struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
	TimedOut bool   `json:"timed_out"`
	// Error says why the command did not run to its end; a program's own failure has none.
	Error string `json:"error,omitempty"`
}

func (l *Runtime) execute(w http.ResponseWriter, r *http.Request, _ string) {
	request, ok := readExecute(w, r)
	if !ok {
		return
	}
	argv, err := []string{"/bin/sh", "-c", *request.Command}, error(nil)
	if !request.Shell {
		argv, err = Split(*request.Command)
	}
	if err == nil && len(argv) == 0 {
		err = errors.New("list index out of range")
	}
	if err != nil {
		writeJSON(w, http.StatusOK, failed(err))
		return
	}
	timeout := l.Timeout()
	if request.TimeoutSeconds != nil {
		timeout = time.Duration(*request.TimeoutSeconds * float64(time.Second))
	}
	p, _, err := l.Registry.StartOnce(r.Header.Get("Idempotency-Key"), process.Spec{
		Command: argv, Dir: l.Directory(), Timeout: timeout, CaptureBytes: outputBytesMax, Forget: true,
	})
	if err != nil {
		writeJSON(w, http.StatusOK, failed(describe(err, argv)))
		return
	}
	// A client that goes away does not stop the command.
	exit, _ := p.Wait(context.WithoutCancel(r.Context()))
	writeJSON(w, http.StatusOK, reply(p, exit, timeout, request.TimeoutSeconds != nil))
}

func readExecute(w http.ResponseWriter, r *http.Request) (request executeRequest, ok bool) {
	body, err := io.ReadAll(io.LimitReader(r.Body, requestBytesMax))
	if err != nil {
		return request, false
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		kind := invalidField{Type: "json_invalid", Location: []any{"body", 0}, Message: "JSON decode error", Input: map[string]any{}}
		if json.Valid(body) {
			kind = invalidField{Type: "model_attributes_type", Location: []any{"body"}, Message: "Input should be a valid dictionary or object to extract fields from", Input: json.RawMessage(bytes.TrimSpace(body))}
		}
		writeInvalid(w, kind)
		return request, false
	}
	command, present := fields["command"]
	if !present {
		writeInvalid(w, invalidField{Type: "missing", Location: []any{"body", "command"}, Message: "Field required", Input: fields})
		return request, false
	}
	if _, isText := command.(string); !isText {
		writeInvalid(w, invalidField{Type: "string_type", Location: []any{"body", "command"}, Message: "Input should be a valid string", Input: command})
		return request, false
	}
	if err := json.Unmarshal(body, &request); err != nil || request.TimeoutSeconds != nil && !validTimeout(*request.TimeoutSeconds) {
		writeInvalid(w, invalidField{Type: "value_error", Location: []any{"body"}, Message: "timeout_seconds must be a number above 0, shell a boolean", Input: fields})
		return request, false
	}
	return request, true
}

// validTimeout refuses what no duration can hold.
func validTimeout(seconds float64) bool {
	return seconds > 0 && seconds < float64(math.MaxInt64)/float64(time.Second)
}

// failed is the shape of every failure: HTTP 200, exit code 1, the reason on standard error.
func failed(err error) executeReply {
	return executeReply{Stderr: "Failed to execute command: " + err.Error(), ExitCode: 1, Error: err.Error()}
}

// describe names a spawn failure as clients know it.
func describe(err error, argv []string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), isNotFound(err):
		return fmt.Errorf("[Errno %d] No such file or directory: %s", int(syscall.ENOENT), quote(argv[0]))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("[Errno %d] Permission denied: %s", int(syscall.EACCES), quote(argv[0]))
	}
	return err
}

func isNotFound(err error) bool {
	var failure *process.StartError
	return errors.As(err, &failure) && failure.Kind == process.StartNotFound
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `\'`) + "'" }

func reply(p *process.Process, exit process.Exit, timeout time.Duration, asked bool) executeReply {
	stdout, stdoutDropped := p.Captured(process.Stdout)
	stderr, stderrDropped := p.Captured(process.Stderr)
	answer := executeReply{Stdout: text(stdout), Stderr: text(stderr), ExitCode: exit.Code}
	if exit.Signal != 0 {
		answer.ExitCode = -int(exit.Signal)
	}
	if stdoutDropped+stderrDropped > 0 {
		answer.Stderr += fmt.Sprintf("\nsandboxd: output truncated: %d bytes of stdout and %d bytes of stderr left out\n", stdoutDropped, stderrDropped)
	}
	if exit.TimedOut {
		seconds := strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64)
		answer.Error = fmt.Sprintf("Command timed out after %s seconds", seconds)
		answer.TimedOut, answer.ExitCode = true, timeoutExitCode
		if !asked {
			// Older clients know a timeout only by these words.
			answer.Stderr += "Failed to execute command: " + answer.Error
			answer.ExitCode = 1
		}
	}
	return answer
}

// text decodes output as clients expect: replacement characters for what is not UTF-8, one kind of line end.
func text(output []byte) string {
	decoded := strings.ToValidUTF8(string(output), "\uFFFD")
	return strings.ReplaceAll(strings.ReplaceAll(decoded, "\r\n", "\n"), "\r", "\n")
}
