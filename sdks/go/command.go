package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ExitStatus says how a process ended.
type ExitStatus struct {
	// ExitCode is the program's own code, or 128 plus the signal's number.
	ExitCode int
	// Signal is "SIGKILL" and so on where a signal ended it.
	Signal string
	// TimedOut says that it was killed because CommandTimeout had passed.
	TimedOut bool
	// Reason is the limit for which it was killed, and what the sandbox says of it: "OOMKilled: ..."; empty where none was.
	Reason string
}

// Success says whether the program succeeded.
func (s ExitStatus) Success() bool { return s.ExitCode == 0 && !s.TimedOut }

// TerminalSize is that of a terminal.
type TerminalSize struct {
	Cols, Rows int
}

// Cmd is a command in a sandbox, in the manner of exec.Cmd: set fields, then Run, or Start and Wait. When its context is
// cancelled, the whole process tree is killed, also where Start had not returned; both return once it is gone, or after five
// seconds in which the sandbox could not be reached.
type Cmd struct {
	// Args is argv; no shell is added.
	Args []string
	// Env is laid over the sandbox's environment.
	Env map[string]string
	// ClearEnv starts from an empty environment instead.
	ClearEnv bool
	// Dir is absolute, or relative to the sandbox's working directory, which is the default.
	Dir string
	// User is "name", "uid", "name:group" or "uid:gid"; default: the sandbox's own.
	User string
	// CommandTimeout kills the whole tree after this long. Zero: no limit.
	CommandTimeout time.Duration
	// RequestTimeout limits how long the sandbox may take to start the command, waking up included. Default two minutes.
	RequestTimeout time.Duration
	// Tag is a name for people, shown by Processes.
	Tag string
	// Log has its output in the sandbox's log too, each line behind the tag, or the program and id.
	Log bool
	// OutputBufferBytes is how much output is kept for replay after a lost connection. Default 1 MiB.
	OutputBufferBytes int
	// Terminal gives the process a terminal of that size.
	Terminal *TerminalSize

	// Stdin is given to the process and closed behind it. Nil: empty, unless StdinPipe was called.
	Stdin io.Reader
	// Stdout and Stderr get the output; nil discards it. The process waits for a slow writer.
	Stdout io.Writer
	Stderr io.Writer

	// Process is set by Start.
	Process *Process
	// ExitStatus is set by Wait.
	ExitStatus *ExitStatus
	// DroppedBytes counts output lost because the connection was away for too long.
	DroppedBytes uint64

	ctx        context.Context
	box        *Sandbox
	script     string
	attachID   string
	service    string
	fromOffset uint64
	stdinPipe  bool
	tail       *tailWriter
	collected  *output
	pipes      []*io.PipeWriter
	ended      chan struct{}
	killed     chan struct{}
	waitErr    error
	fed        sync.WaitGroup
	feedErr    error
	stop       context.CancelCauseFunc
}

const requestTimeoutDefault = 2 * time.Minute

// Command makes a command; nothing runs yet.
func (b *Sandbox) Command(ctx context.Context, name string, args ...string) *Cmd {
	return &Cmd{Args: append([]string{name}, args...), ctx: ctx, box: b}
}

// Shell makes a command of a script for the sandbox's shell.
func (b *Sandbox) Shell(ctx context.Context, script string) *Cmd {
	command := b.Command(ctx, "/bin/sh", "-c", script)
	command.script = script
	return command
}

// Attach makes a handle of a process that was started before, here or elsewhere; fromOffset leaves out what was seen.
// Start or Run follows it. A cancelled context stops following and leaves the process alone.
func (b *Sandbox) Attach(ctx context.Context, processID string, fromOffset uint64) *Cmd {
	return &Cmd{ctx: ctx, box: b, attachID: processID, fromOffset: fromOffset}
}

// Run starts the command and waits for it; a command that failed is an *ExitError.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns what it printed on standard output.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("sandbox: Stdout already set")
	}
	var output bytes.Buffer
	c.Stdout = &output
	if c.Stderr == nil {
		c.tail = &tailWriter{}
	}
	err := c.Run()
	return output.Bytes(), err
}

// CombinedOutput runs the command and returns both streams, in the order in which the sandbox read them.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("sandbox: Stdout or Stderr already set")
	}
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	err := c.Run()
	return output.Bytes(), err
}

// StdinPipe returns a writer to the command's standard input; closing it closes that.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil || c.Process != nil {
		return nil, errors.New("sandbox: StdinPipe after Start, or with Stdin set")
	}
	c.stdinPipe = true
	return &stdinWriter{c}, nil
}

// StdoutPipe returns a reader of the command's standard output; read it to its end before Wait.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) { return c.outputPipe(&c.Stdout) }

// StderrPipe returns a reader of the command's standard error; read it to its end before Wait.
func (c *Cmd) StderrPipe() (io.ReadCloser, error) { return c.outputPipe(&c.Stderr) }

func (c *Cmd) outputPipe(target *io.Writer) (io.ReadCloser, error) {
	if *target != nil || c.Process != nil {
		return nil, errors.New("sandbox: pipe after Start, or of a stream that is set")
	}
	reader, writer := io.Pipe()
	*target = writer
	c.pipes = append(c.pipes, writer)
	return reader, nil
}

func (c *Cmd) spec() (*sandboxv1.ProcessSpec, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return nil, newError(errorcode.InvalidArgument, "command is empty")
	}
	if c.CommandTimeout < 0 {
		return nil, newError(errorcode.InvalidArgument, "CommandTimeout must be above 0, not %s", c.CommandTimeout)
	}
	spec := &sandboxv1.ProcessSpec{
		Command: c.Args, Env: c.Env, ClearEnv: c.ClearEnv, Cwd: c.Dir, User: c.User, Tag: c.Tag, Log: c.Log,
		Stdin: c.Stdin != nil || c.stdinPipe, OutputBufferBytes: uint64(c.OutputBufferBytes),
	}
	if c.CommandTimeout > 0 {
		spec.Timeout = durationpb.New(c.CommandTimeout)
	}
	if c.Terminal != nil {
		spec.Terminal = &sandboxv1.TerminalSize{Cols: uint32(c.Terminal.Cols), Rows: uint32(c.Terminal.Rows)}
	}
	return spec, nil
}

// Start starts the command; it returns when the process runs.
func (c *Cmd) Start() error {
	if c.ended != nil {
		return errors.New("sandbox: already started")
	}
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	c.ended, c.killed = make(chan struct{}), make(chan struct{})
	source := &eventSource{client: c.box.processes, attachID: c.attachID, offset: c.fromOffset, findEnd: c.box.findEnd, commandTimeout: c.CommandTimeout}
	if c.attachID == "" {
		spec, err := c.spec()
		if err != nil {
			return err
		}
		source.spec, source.key, source.service = spec, newKey(), c.service
	}
	limit := c.RequestTimeout
	if limit == 0 {
		limit = requestTimeoutDefault
	}
	// The stream outlives the caller's context by the moment it takes to kill the process.
	following, stop := context.WithCancelCause(context.WithoutCancel(c.ctx))
	c.stop = stop
	started := make(chan error, 1)
	go c.follow(following, source, started)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-started:
		if err != nil {
			stop(nil)
			if isUnanswered(err) {
				c.cancelStart(source)
			}
			return err
		}
	case <-c.ctx.Done():
		stop(context.Cause(c.ctx))
		c.cancelStart(source)
		return context.Cause(c.ctx)
	case <-timer.C:
		late := newError(errorcode.RequestTimeout, "the command did not start in %s", limit)
		stop(late)
		c.cancelStart(source)
		return late
	}
	go c.killWhenCancelled(stop)
	if c.Stdin != nil {
		c.fed.Go(func() { c.feedErr = c.feed() })
	}
	return nil
}

func newKey() string {
	var random [8]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

const (
	// killLimit bounds how long a cancelled call waits until the sandbox has answered the kill.
	killLimit      = 5 * time.Second
	killPauseFirst = 50 * time.Millisecond
)

// cancelStart ends the process of a start that was given up, or keeps it from beginning, by the start's key: there is no process id yet.
func (c *Cmd) cancelStart(source *eventSource) {
	if source.key == "" {
		return
	}
	c.repeatUntilAnswered(func(ctx context.Context) error {
		_, err := c.box.processes.Cancel(ctx, &sandboxv1.CancelRequest{IdempotencyKey: source.key})
		return callError(ctx, err)
	})
}

// repeatUntilAnswered repeats a call that is safe to repeat until the sandbox has answered it, for killLimit at most. It returns no
// error: the call that was given up has its own, and an unreachable sandbox is the connection's failure.
func (c *Cmd) repeatUntilAnswered(call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), killLimit)
	defer cancel()
	for pause := killPauseFirst; ; pause *= 2 {
		if err := call(ctx); !isUnanswered(err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (c *Cmd) killWhenCancelled(stop context.CancelCauseFunc) {
	defer close(c.killed)
	select {
	case <-c.ended:
	case <-c.ctx.Done():
		if c.attachID == "" {
			c.repeatUntilAnswered(func(ctx context.Context) error {
				_, err := c.Process.Kill(ctx)
				return err
			})
		}
	}
	stop(context.Cause(c.ctx))
}

// follow reads events to the exit and gives output to the writers.
func (c *Cmd) follow(ctx context.Context, source *eventSource, started chan<- error) {
	err := source.follow(ctx, func(event *sandboxv1.ProcessEvent) error { return c.take(event, started) })
	if c.ExitStatus != nil {
		c.ExitStatus.Reason = source.reason
	}
	select {
	case started <- err:
	default:
	}
	for _, pipe := range c.pipes {
		pipe.CloseWithError(err)
	}
	c.waitErr = err
	close(c.ended)
}

func (c *Cmd) take(event *sandboxv1.ProcessEvent, started chan<- error) error {
	switch body := event.GetEvent().(type) {
	case *sandboxv1.ProcessEvent_Started:
		c.Process = &Process{ID: body.Started.GetId(), Pid: int(body.Started.GetPid()), box: c.box}
		started <- nil
	case *sandboxv1.ProcessEvent_Stdout:
		if c.collected != nil {
			c.collected.stdout.Write(body.Stdout.GetData())
			c.collected.combined.Write(body.Stdout.GetData())
		}
		return write(c.Stdout, body.Stdout.GetData())
	case *sandboxv1.ProcessEvent_Stderr:
		if c.collected != nil {
			c.collected.stderr.Write(body.Stderr.GetData())
			c.collected.combined.Write(body.Stderr.GetData())
		}
		if c.tail != nil {
			return write(c.tail, body.Stderr.GetData())
		}
		return write(c.Stderr, body.Stderr.GetData())
	case *sandboxv1.ProcessEvent_Dropped:
		c.DroppedBytes += body.Dropped.GetToOffset() - body.Dropped.GetFromOffset()
	case *sandboxv1.ProcessEvent_Exit:
		c.ExitStatus = exitStatusOf(body.Exit)
	}
	return nil
}

// Detach stops following; the process goes on, and Wait returns `closed`.
func (c *Cmd) Detach() error {
	if c.stop == nil {
		return errors.New("sandbox: not started")
	}
	c.stop(newError(errorcode.Closed, "the process is no longer followed"))
	for _, pipe := range c.pipes {
		pipe.CloseWithError(io.ErrClosedPipe)
	}
	<-c.ended
	return nil
}

func write(to io.Writer, data []byte) error {
	if to == nil {
		return nil
	}
	_, err := to.Write(data)
	return err
}

func exitStatusOf(exit *sandboxv1.Exit) *ExitStatus {
	return &ExitStatus{ExitCode: int(exit.GetCode()), Signal: exit.GetSignal(), TimedOut: exit.GetTimedOut()}
}

// Wait waits for the end of the process and of its output; a command that failed is an *ExitError.
func (c *Cmd) Wait() error {
	if c.ended == nil {
		return errors.New("sandbox: not started")
	}
	<-c.ended
	c.fed.Wait()
	if c.ctx.Err() != nil {
		// The exit may be seen before the rest of the tree is gone.
		<-c.killed
		return context.Cause(c.ctx)
	}
	if c.waitErr != nil {
		return c.waitErr
	}
	if c.ExitStatus.Success() {
		return c.feedErr
	}
	return c.exitError()
}

// stderrCharsMax is enough to see why, and little enough for one log line.
const stderrCharsMax = 400

func (c *Cmd) exitError() *ExitError {
	failure := &ExitError{ExitStatus: *c.ExitStatus}
	if c.tail != nil {
		failure.Stderr = c.tail.bytes
	}
	shown := firstOf(c.script, strings.Join(c.Args, " "))
	if len(shown) > 80 {
		shown = shown[:77] + "..."
	}
	code, how := errorcode.CommandFailed, "exited with "+itoa(c.ExitStatus.ExitCode)
	switch {
	case c.ExitStatus.TimedOut:
		code, how = errorcode.CommandTimeout, "ran out of time"
	case c.ExitStatus.Signal != "":
		how = "was ended by " + c.ExitStatus.Signal
	}
	if c.ExitStatus.Reason != "" {
		how += " (" + c.ExitStatus.Reason + ")"
	}
	message := "command '" + shown + "' " + how
	if tail := trimTail(string(failure.Stderr), stderrCharsMax); tail != "" {
		message += ": " + tail
	}
	failure.err = newError(code, "%s", message)
	return failure
}

// tailWriter keeps the last bytes only; bound: 32 KiB, as exec.Cmd does.
type tailWriter struct{ bytes []byte }

const tailBytesMax = 32 << 10

func (t *tailWriter) Write(data []byte) (int, error) {
	t.bytes = append(t.bytes, data...)
	if extra := len(t.bytes) - tailBytesMax; extra > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[extra:]...)
	}
	return len(data), nil
}
