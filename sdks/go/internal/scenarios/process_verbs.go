package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	sandbox "agent-sandbox.dev/sdk"
	"agent-sandbox.dev/sdk/errorcode"
)

// process is a command with its streams.
type process struct {
	command *sandbox.Cmd
	stdout  io.Reader
	cancel  context.CancelFunc
}

// cutPause gives the client time to come back and read something between two cuts.
const cutPause = 600 * time.Millisecond

func (w *world) command(ctx context.Context, s step) *sandbox.Cmd {
	var command *sandbox.Cmd
	if script, isText := s["command"].(string); isText {
		command = w.box(s).Shell(ctx, script)
	} else {
		argv := append(texts(s["command"]), "")
		command = w.box(s).Command(ctx, argv[0], argv[1:max(1, len(argv)-1)]...)
	}
	command.Env, command.ClearEnv, command.Dir, command.User = textMap(s, "env"), truth(s, "clearEnv"), text(s, "cwd"), text(s, "user")
	command.Log = s["log"] == true
	command.Tag, command.CommandTimeout = text(s, "tag"), seconds(s, "commandTimeoutSeconds")
	if stdin, has := s["stdin"]; has {
		command.Stdin = strings.NewReader(stdin.(string))
	}
	return command
}

func (w *world) run(ctx context.Context, s step) (result, error) {
	if after := seconds(s, "cancelAfterSeconds"); after > 0 {
		cancelled, cancel := context.WithTimeout(ctx, after)
		defer cancel()
		_, err := w.command(cancelled, s).Result()
		return result{"cancelled": errors.Is(err, context.DeadlineExceeded)}, nil
	}
	var cuts sync.WaitGroup
	cuts.Go(func() {
		for range int(number(s, "cuts")) {
			time.Sleep(cutPause)
			w.proxy.cut()
		}
	})
	done, err := w.command(ctx, s).Result()
	cuts.Wait()
	if err != nil {
		return nil, err
	}
	if truth(s, "check") && !done.Success() {
		return nil, &sandbox.Error{Code: errorcode.CommandFailed, Message: "the command failed"}
	}
	return describe(done), nil
}

func describe(done *sandbox.RunResult) result {
	sum := sha256.Sum256(done.Stdout)
	lines := strings.Split(strings.TrimSuffix(string(done.Stdout), "\n"), "\n")
	return result{
		"exitCode": done.ExitCode, "signal": done.Signal, "timedOut": done.TimedOut, "reason": done.Reason, "stdout": string(done.Stdout), "stderr": string(done.Stderr),
		"combined": string(done.Combined), "stdoutSize": len(done.Stdout), "stdoutSha256": hex.EncodeToString(sum[:]),
		"stdoutLines": len(lines), "lastLine": lines[len(lines)-1], "droppedBytes": int(done.DroppedBytes),
	}
}

func (w *world) runMany(ctx context.Context, s step) (result, error) {
	count := int(number(s, "count"))
	outputs, failures := make([]string, count), make([]error, count)
	var all sync.WaitGroup
	for index := range count {
		all.Go(func() {
			script := strings.ReplaceAll(text(s, "command"), "${index}", strconv.Itoa(index))
			output, err := w.box(s).Shell(ctx, script).Output()
			outputs[index], failures[index] = string(output), err
		})
	}
	all.Wait()
	distinct := map[string]bool{}
	for _, output := range outputs {
		distinct[output] = true
	}
	return result{"distinctOutputs": len(distinct), "failures": 0}, errors.Join(failures...)
}

func (w *world) start(s step, command *sandbox.Cmd, cancel context.CancelFunc) (result, error) {
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	w.processes[text(s, "as")] = &process{command, stdout, cancel}
	w.kept[text(s, "as")] = result{"id": command.Process.ID}
	return w.kept[text(s, "as")], nil
}

func (w *world) spawn(ctx context.Context, s step) (result, error) {
	command := w.command(ctx, s)
	if _, err := command.StdinPipe(); err != nil {
		return nil, err
	}
	return w.start(s, command, func() {})
}

func (w *world) pty(ctx context.Context, s step) (result, error) {
	command := w.command(ctx, s)
	command.Terminal = &sandbox.TerminalSize{Cols: int(number(s, "cols")), Rows: int(number(s, "rows"))}
	return w.start(s, command, func() {})
}

func (w *world) attach(ctx context.Context, s step) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	return w.start(s, w.box(s).Attach(ctx, text(s, "id"), uint64(number(s, "fromOffset"))), cancel)
}

func (w *world) readUntil(_ context.Context, s step) (result, error) {
	var seen bytes.Buffer
	piece := make([]byte, 4096)
	for !strings.Contains(seen.String(), text(s, "text")) {
		n, err := w.processes[text(s, "process")].stdout.Read(piece)
		seen.Write(piece[:n])
		if err != nil {
			return nil, fmt.Errorf("output ended after %q: %w", seen.String(), err)
		}
	}
	return result{"text": seen.String()}, nil
}

func (w *world) write(ctx context.Context, s step) (result, error) {
	return result{}, w.processes[text(s, "process")].command.Process.WriteStdin(ctx, []byte(text(s, "text")), false)
}

func (w *world) closeInput(ctx context.Context, s step) (result, error) {
	return result{}, w.processes[text(s, "process")].command.Process.WriteStdin(ctx, nil, true)
}

func (w *world) signal(ctx context.Context, s step) (result, error) {
	target := w.processes[text(s, "process")].command.Process
	scope := sandbox.ScopeTree
	if asked := text(s, "scope"); asked != "" {
		scope = sandbox.SignalScope(asked)
	}
	_, err := target.Signal(ctx, text(s, "signal"), scope)
	return result{}, err
}

func (w *world) resize(ctx context.Context, s step) (result, error) {
	size := sandbox.TerminalSize{Cols: int(number(s, "cols")), Rows: int(number(s, "rows"))}
	return result{}, w.processes[text(s, "process")].command.Process.Resize(ctx, size)
}

func (w *world) detach(_ context.Context, s step) (result, error) {
	return result{}, w.processes[text(s, "process")].command.Detach()
}

func (w *world) wait(_ context.Context, s step) (result, error) {
	p := w.processes[text(s, "process")]
	rest, err := io.ReadAll(p.stdout)
	if waitErr := p.command.Wait(); waitErr != nil && sandbox.CodeOf(waitErr) != errorcode.CommandFailed {
		err = waitErr
	}
	if err != nil {
		return nil, err
	}
	status := p.command.ExitStatus
	return result{"exitCode": status.ExitCode, "signal": status.Signal, "rest": string(rest)}, nil
}

func (w *world) listProcesses(ctx context.Context, s step) (result, error) {
	found, err := w.box(s).Processes(ctx, sandbox.ProcessesOptions{})
	count, running := 0, 0
	for _, info := range found {
		if info.Tag == text(s, "tag") {
			count++
			if info.Exit == nil {
				running++
			}
		}
	}
	return result{"count": count, "running": running}, err
}

func (w *world) cut(context.Context, step) (result, error) {
	w.proxy.cut()
	return result{}, nil
}
