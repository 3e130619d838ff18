package ociruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// controlSocket is where the sentry of a sandbox listens.
func (e *Engine) controlSocket(sandboxID string) confine.Entry {
	return e.run.At(Runsc, "runsc-"+runtimeID(sandboxID)+".sock")
}

// errRefused is an answer of the sentry that is not a success.
var errRefused = errors.New("the sentry refused")

// callSentry is one call of the sentry's own protocol: one JSON object each way over its control socket, with files beside the first byte. A call
// of the runtime's program does the same, and costs as much as a sandbox's whole stop for it.
func callSentry(ctx context.Context, socket confine.Entry, method string, arg, result any, files ...*os.File) error {
	var conn net.Conn
	if err := socket.Through(func(path string) (err error) {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, "unix", path)
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := sendCall(conn, map[string]any{"method": method, "arg": arg}, files); err != nil {
		return err
	}
	var answer struct {
		Success bool            `json:"success"`
		Err     string          `json:"err"`
		Result  json.RawMessage `json:"result"`
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return err
	}
	if !answer.Success {
		return fmt.Errorf("%w: %s", errRefused, answer.Err)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

func sendCall(conn net.Conn, call any, files []*os.File) error {
	text, err := json.Marshal(call)
	if err != nil {
		return err
	}
	sent := 0
	if socket, ok := conn.(*net.UnixConn); ok && len(files) > 0 {
		descriptors := make([]int, 0, len(files))
		for _, f := range files {
			descriptors = append(descriptors, int(f.Fd()))
		}
		if sent, _, err = socket.WriteMsgUnix(text, unix.UnixRights(descriptors...), nil); err != nil {
			return err
		}
	}
	_, err = conn.Write(text[sent:])
	return err
}

// waitBySentry resolves when a container's first process ends; it may last as long as the container.
func waitBySentry(socket confine.Entry, id string) (uint32, error) {
	var status uint32
	return status, callSentry(context.Background(), socket, "containerManager.Wait", id, &status)
}

// signalArgs has the names of the sentry's own structure.
type signalArgs struct {
	CID   string
	Signo int32
	PID   int32
	Mode  int
}

// The sentry's modes of delivery.
const (
	deliverToProcess = iota
	deliverToAll
)

func (e *Engine) signalBySentry(ctx context.Context, r record, signal string, all bool) error {
	number, err := signalNumber(signal)
	if err != nil {
		return err
	}
	args := signalArgs{CID: runtimeID(r.ID), Signo: number, Mode: deliverToProcess}
	if all {
		args.Mode = deliverToAll
	}
	return callSentry(ctx, e.controlSocket(r.SandboxID), "containerManager.Signal", args, nil)
}

// signalNumber is the number of a signal that signalPattern let through.
func signalNumber(name string) (int32, error) {
	const realTimeMin = 34
	if offset, found := strings.CutPrefix(name, "RTMIN+"); found {
		n, err := strconv.Atoi(offset)
		if err != nil || n > 64-realTimeMin {
			return 0, hosterr.New(hosterr.InvalidArgument, "signal: %q is no real-time signal", name)
		}
		return int32(realTimeMin + n), nil
	}
	number := unix.SignalNum("SIG" + name)
	if number == 0 {
		return 0, hosterr.New(hosterr.InvalidArgument, "signal: %q is not a signal's name without SIG", name)
	}
	return int32(number), nil
}

// destroySandbox ends a sentry that is known by its process, and takes away what runsc keeps of it, as `runsc delete --force` does.
func (e *Engine) destroySandbox(ctx context.Context, r record) error {
	if err := endProcess(ctx, r.Pid, r.StartTicks); err != nil {
		return hosterr.New(hosterr.DeadlineExceeded, "sentry of container %s: %v", r.ID, err)
	}
	if err := e.controlSocket(r.ID).Remove(); err != nil {
		return err
	}
	return e.forgetAtRunsc(ctx, r)
}

// forgetAtRunsc takes away what runsc keeps of a container whose sentry has ended.
func (e *Engine) forgetAtRunsc(ctx context.Context, r record) error {
	base := e.run.At(Runsc, fmt.Sprintf("%s_sandbox:%s", runtimeID(r.ID), runtimeID(r.SandboxID)))
	state := base.WithSuffix(".state")
	if err := e.endGofer(ctx, state); err != nil {
		return hosterr.New(hosterr.DeadlineExceeded, "gofer of container %s: %v", r.ID, err)
	}
	return errors.Join(state.Remove(), base.WithSuffix(".lock").Remove())
}

// endGofer ends the process that serves a sandbox's files. It ends by itself when the sentry does, and holds mounts until then.
func (e *Engine) endGofer(ctx context.Context, stateFile confine.Entry) error {
	text, err := stateFile.ReadFile(configBytesMax)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var state struct {
		GoferPid int `json:"goferPid"`
	}
	if err := json.Unmarshal(text, &state); err != nil || state.GoferPid <= 0 {
		return err
	}
	// The start time is read first: if the number changes hands after that, no process has both and none is killed.
	stat, err := readStat(state.GoferPid)
	if err != nil {
		return nil
	}
	// A number may be another process's by then; the gofer names the directory of its instance on its command line.
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", state.GoferPid))
	if err != nil || !strings.Contains(string(cmdline), e.run.At(Runsc).Path()) {
		return nil
	}
	return endProcess(ctx, state.GoferPid, stat.startTicks)
}
