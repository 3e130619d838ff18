package ociruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/cgroup"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/loopfs"
	"golang.org/x/sys/unix"
)

// Run starts a container, or finds the one that the same request started.
func (e *Engine) Run(ctx context.Context, r RunRequest) (State, error) {
	if err := r.Check(); err != nil {
		return State{}, err
	}
	if r.Runtime == Runc && !e.config.AllowRunc {
		return State{}, hosterr.New(hosterr.PermissionDenied, "runtime: the operator of this machine has not allowed runc")
	}
	hash, err := hashOf(r)
	if err != nil {
		return State{}, err
	}
	before, err := e.readRecord(r.ID)
	switch {
	case err == nil && before.Hash != hash:
		return State{}, hosterr.New(hosterr.AlreadyExists, "container %s exists and was started otherwise", r.ID)
	case err == nil && before.Running:
		return e.state(before)
	case err == nil:
		// Killed in the middle: what the runtime made of it is unknown, so it is made again from the start, unless its guest has memory that it goes on with.
		if state, taken, err := e.takeOverState(ctx, before); taken || err != nil {
			return state, err
		}
		if err := e.Delete(ctx, r.ID); err != nil {
			return State{}, err
		}
	case !hosterr.Is(err, hosterr.NotFound):
		return State{}, err
	default:
		if err := e.deleteLost(ctx, r.ID); err != nil {
			return State{}, err
		}
	}
	made, serving, err := e.start(ctx, r, hash)
	if err != nil {
		// A container that did not start leaves nothing; the first error is the one that tells why.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return State{}, errors.Join(err, e.Delete(cleanup, r.ID), e.endHalfRestored(cleanup, r, err))
	}
	e.watch(made)
	state, err := e.state(made)
	state.Serving = serving && state.Status == "running"
	return state, err
}

// start also says whether the first process serves already.
func (e *Engine) start(ctx context.Context, r RunRequest, hash string) (rec record, serving bool, err error) {
	if err := errors.Join(e.ensureDirs(), e.containerDir(r.ID).EnsureRootDir(0o700, 0)); err != nil {
		return rec, false, err
	}
	rec = record{
		ID: r.ID, Name: r.ID, Hash: hash, Runtime: r.Runtime, SandboxID: r.SandboxID, Rootfs: r.Rootfs, Cgroup: r.Cgroup, BootID: e.bootID, StartedAt: time.Now().UTC(),
	}
	if rec.SandboxID == "" {
		rec.SandboxID = r.ID
	}
	if rec.RuntimeVersion, err = e.buildFor(r); err != nil {
		return rec, false, err
	}
	by, err := e.driverOf(rec)
	if err != nil {
		return rec, false, err
	}
	var plan *restorePlan
	if r.RestoreFrom != nil {
		if plan, err = e.planRestore(r); err != nil {
			return rec, false, err
		}
		rec.Name, rec.RestoredFrom = plan.was.Name, plan.from.ID
		r.Mounts = withPrograms(r.Mounts, plan.was.Programs)
	}
	rec.Programs = programsOf(r.Mounts)
	begun, err := e.beginRecord(rec)
	if err != nil {
		return rec, false, err
	}
	where, err := e.placeOf(r)
	if err != nil {
		return rec, false, err
	}
	switch {
	case r.Waiting:
		err = e.prepareWait(r)
	case r.Slot != nil:
		err = e.network.Readdress(*r.Slot)
	}
	if err != nil {
		return rec, false, err
	}
	where.name = rec.Name
	config, err := json.Marshal(buildSpec(r, where))
	if err != nil {
		return rec, false, err
	}
	if err := e.inDir(r.ID, "config.json").WriteFile(config, 0o600); err != nil {
		return rec, false, err
	}
	talk, err := newHandshake(r)
	if err != nil {
		return rec, false, err
	}
	defer talk.close()
	if plan != nil {
		err = e.launchRestore(ctx, r, by, plan)
	} else {
		err = e.launchAndConnect(ctx, r, by, talk)
	}
	if err != nil {
		return rec, false, err
	}
	if r.Waiting {
		if err := e.settleWait(r); err != nil {
			return rec, false, err
		}
	}
	rec, running, err := e.markRunning(rec)
	if err != nil {
		return rec, false, err
	}
	if plan != nil {
		serving, err = e.goOn(rec, plan.from)
		serving = serving && r.Handshake
	} else {
		serving = talk.awaitReady(ctx)
	}
	return rec, serving, errors.Join(err, begun(), running())
}

// launchAndConnect starts the container, and connects the sandbox that it joins if that waits; its rules come into force meanwhile. A first
// process that asks before it runs its program may be started meanwhile; any other one has to wait.
func (e *Engine) launchAndConnect(ctx context.Context, r RunRequest, by driver, talk *handshake) error {
	settled := func() error { return nil }
	connect := func() (err error) {
		if r.Connect == nil {
			return nil
		}
		if settled, err = e.connect(ctx, r.SandboxID, *r.Connect); err != nil {
			return err
		}
		return e.rules.Await(ctx, r.Connect.Slot, r.Connect.Address)
	}
	if talk == nil {
		if err := connect(); err != nil {
			return err
		}
		wait, err := e.launch(ctx, r, by, nil)
		if err != nil {
			return err
		}
		return errors.Join(wait(), settled())
	}
	wait, err := e.launch(ctx, r, by, talk)
	if err != nil {
		return err
	}
	if err = connect(); err == nil {
		err = talk.sayGo()
	}
	if err != nil {
		return errors.Join(err, wait())
	}
	return errors.Join(wait(), settled())
}

// pidBytesMax is more than any process's number takes.
const pidBytesMax = 64

func (e *Engine) markRunning(rec record) (running record, settled func() error, err error) {
	text, err := e.inDir(rec.ID, "pid").ReadFile(pidBytesMax)
	if err != nil {
		return record{}, nil, err
	}
	if rec.Pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return record{}, nil, err
	}
	if rec.Runtime == Runsc && rec.isRoot() {
		if err := raiseSentry(rec.Pid, oomScoreAdj(ownOOMScoreAdj(), e.cgroups.KillsSingly())); err != nil {
			return record{}, nil, err
		}
	}
	// A process that ended at once has no start time any more; zero matches no live one.
	if stat, err := readStat(rec.Pid); err == nil {
		rec.StartTicks = stat.startTicks
	}
	rec.Running = true
	settled, err = e.beginRecord(rec)
	return rec, settled, err
}

func (e *Engine) placeOf(r RunRequest) (place, error) {
	rootfs := e.rootfs.At(r.Rootfs)
	p := place{rootfs: rootfs.Path(), oomScoreAdj: oomScoreAdj(ownOOMScoreAdj(), e.cgroups.KillsSingly())}
	mounted, err := loopfs.Mounted(rootfs)
	if err != nil {
		return p, err
	}
	if !mounted {
		return p, hosterr.New(hosterr.NotFound, "root file system %s is not prepared", r.Rootfs)
	}
	if r.Slot != nil {
		namespace := e.network.Namespace(*r.Slot)
		p.netns = namespace.Path()
		if exists, err := namespace.Exists(); err != nil || !exists {
			return p, hosterr.New(hosterr.NotFound, "slot %d does not exist", *r.Slot)
		}
	}
	if r.Cgroup != "" && !e.cgroups.Exists(r.Cgroup) {
		return p, hosterr.New(hosterr.NotFound, "cgroup %s does not exist", r.Cgroup)
	}
	if e.cgroups.IsFrozen(r.Cgroup) {
		return p, hosterr.New(hosterr.Busy, "cgroup %s is frozen", r.Cgroup)
	}
	p.cgroupsPath = e.cgroups.Path(filepath.Join(r.Cgroup, cgroup.ContainerPrefix+r.ID))
	if r.SandboxID != "" {
		root, err := e.readRecord(r.SandboxID)
		if err != nil {
			return p, err
		}
		if root.Runtime != r.Runtime || !root.isRoot() {
			return p, hosterr.New(hosterr.InvalidArgument, "sandboxId: %s is not the root of a %s sandbox", r.SandboxID, r.Runtime)
		}
		if !e.isAlive(root) {
			return p, hosterr.New(hosterr.Busy, "sandbox %s has ended", r.SandboxID)
		}
		if err := e.checkGoing(r.SandboxID); err != nil {
			return p, err
		}
		p.sandboxPid = root.Pid
	}
	if p.mounts, err = e.resolveMounts(r); err != nil {
		return p, err
	}
	return p, clearMountPoints(rootfs, p.mounts, r.Process.Cwd)
}

// launch calls the runtime; the function it returns waits until the container's first process runs. Whatever is started is in the pod's
// cgroup, has files or pipes of ours for output and no other tie to this process.
func (e *Engine) launch(ctx context.Context, r RunRequest, by driver, talk *handshake) (wait func() error, err error) {
	// A caller that hangs up does not have the runtime killed in the middle of what it does.
	calling, cancel := untilDeadline(ctx)
	defer func() {
		if wait == nil {
			cancel()
		}
	}()
	cmd := e.launchCommand(calling, r, by)
	files, err := e.openOutput(r, talk)
	defer closeAll(files[:])
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.Env = runtimeEnv()
	lock, err := e.lockLaunch(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if r.Runtime == Runc {
		// Its parent lives as long as the container.
		cancel()
		return e.launchParent(ctx, r, cmd, lock)
	}
	cmd.ExtraFiles = []*os.File{lock}
	if err := startTracked(cmd, func() error { return e.cgroups.Start(cmd, r.Cgroup) }); err != nil {
		return nil, err
	}
	return func() error {
		defer cancel()
		if err := waitTracked(cmd); err != nil && r.RestoreFrom != nil {
			return hosterr.New(hosterr.RestoreFailed, "container %s cannot be restored from %s: %s (%v)", r.ID, r.RestoreFrom.Saved, lastMessage(e.inDir(r.ID, "runtime.log"), nil), err)
		} else if err != nil {
			return e.failure(ctx, r.Runtime, r.ID, "run", err, lastMessage(e.inDir(r.ID, "runtime.log"), nil))
		}
		return nil
	}, nil
}

// untilDeadline is done when the time is over, not when the caller hangs up.
func untilDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		return context.WithDeadline(context.WithoutCancel(ctx), end)
	}
	return context.WithoutCancel(ctx), func() {}
}

// lockLaunch waits until no call of the runtime that an earlier helper made for this container is on its way. The call holds the lock by an
// inherited descriptor, so that it also holds when the helper that made it was killed.
func (e *Engine) lockLaunch(ctx context.Context, id string) (*os.File, error) {
	lock, err := e.inDir(id, "launch.lock").Open(unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, lock.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(hosterr.New(hosterr.DeadlineExceeded, "an earlier start of container %s is still on its way: %v", id, ctx.Err()), lock.Close())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (e *Engine) launchCommand(ctx context.Context, r RunRequest, by driver) *exec.Cmd {
	args := e.globalArgs(r.Runtime, e.inDir(r.ID, "runtime.log"))
	dir, pid := e.containerDir(r.ID).Path(), e.inDir(r.ID, "pid").Path()
	if r.Runtime == Runc {
		args = append(args, "run", "--detach", "--bundle", dir, "--pid-file", pid, runtimeID(r.ID))
		// Not bound to the context: it lives as long as the container.
		return exec.Command(e.config.SelfPath, append([]string{"container-parent", dir, by.program}, args...)...)
	}
	if r.SandboxID == "" {
		// The sentry's own log is the one durable record of how it ended.
		args = append(args, "--debug-log="+e.inDir(r.ID, "runsc.%COMMAND%.log").Path())
		// A connection that was open when a sandbox was saved is closed in the one that is restored, so that its peer is reset when it sends.
		args = append(args, "--allow-live-tcp-migration=false")
	}
	if r.RestoreFrom != nil {
		return exec.CommandContext(ctx, by.program, append(args, e.restoreArgs(r, dir, pid)...)...)
	}
	return exec.CommandContext(ctx, by.program, append(args, "run", "--detach", "--bundle="+dir, "--pid-file="+pid, runtimeID(r.ID))...)
}

// openOutput opens the container's standard input, output and error.
func (e *Engine) openOutput(r RunRequest, talk *handshake) ([3]*os.File, error) {
	if r.Waiting {
		return e.openWait(r.ID)
	}
	files := talk.theirs()
	for i, stream := range []struct{ field, path string }{{}, {"stdoutPath", r.StdoutPath}, {"stderrPath", r.StderrPath}} {
		var err error
		if files[i] != nil {
			continue
		}
		if stream.path == "" {
			files[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		} else {
			files[i], err = e.openForAppend(stream.field, stream.path)
		}
		if err != nil {
			return files, err
		}
	}
	return files, nil
}

// openForAppend opens a file of the node's; one that is made is the node's too. runsc gives the file to the user of its sandbox (configureStdios),
// so a start that is repeated finds one that the node may not open any more: it is then made anew, with the node's own right over its directory.
func (e *Engine) openForAppend(field, name string) (*os.File, error) {
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT
	f, err := e.node.OpenFile(field, name, flags, 0o640)
	if !hosterr.Is(err, hosterr.PermissionDenied) {
		return f, err
	}
	if e.node.RemoveFile(field, name) != nil {
		return nil, err
	}
	return e.node.OpenFile(field, name, flags|unix.O_EXCL, 0o640)
}

// launchParent starts the small parent that outlives us and keeps a runc container's exit code, which only a parent gets.
func (e *Engine) launchParent(ctx context.Context, r RunRequest, cmd *exec.Cmd, lock *os.File) (wait func() error, err error) {
	ready, told, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{told, lock}
	err = startTracked(cmd, func() error { return e.cgroups.Start(cmd, "") })
	told.Close()
	if err != nil {
		return nil, errors.Join(err, ready.Close())
	}
	return func() error {
		defer ready.Close()
		answer := make([]byte, 16)
		n, _ := ready.Read(answer)
		if string(answer[:n]) == "started" {
			go func() { _ = waitTracked(cmd) }()
			return nil
		}
		err := waitTracked(cmd)
		return e.failure(ctx, r.Runtime, r.ID, "run", fmt.Errorf("%v", err), lastMessage(e.inDir(r.ID, "runtime.log"), nil))
	}, nil
}
