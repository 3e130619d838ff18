package ociruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// SaveRequest is a sandbox, by its root container, and the name of the state that is made of it.
type SaveRequest struct {
	ID    string `json:"id"`
	Saved string `json:"saved"`
	// Reusable: the caller copies the files at the same standstill, so that the state fits those copies however often it is restored.
	Reusable bool `json:"reusable,omitempty"`
}

// ContinueRequest is a stopped sandbox that is to go on, and a state that is discarded before.
type ContinueRequest struct {
	ID    string `json:"id"`
	Saved string `json:"saved,omitempty"`
}

// Save stops a sandbox and writes its memory to disk. The guest stands still once it has succeeded; otherwise nothing is saved and the guest goes on.
func (e *Engine) Save(ctx context.Context, r SaveRequest) (Saved, error) {
	if err := instance.CheckID("saved", r.Saved); err != nil {
		return Saved{}, err
	}
	root, err := e.liveRoot(r.ID)
	if err != nil {
		return Saved{}, err
	}
	if root.Runtime != Runsc {
		return Saved{}, hosterr.New(hosterr.Unsupported, "only runsc saves a sandbox, %s runs under %s", r.ID, root.Runtime)
	}
	before, err := e.readPause(r.ID)
	if err != nil {
		return Saved{}, err
	}
	found, err := e.readSaved(r.Saved)
	switch {
	case err == nil && before != nil && before.Step == stepPaused && before.Saved == r.Saved:
		return e.describe(found), nil
	case err == nil:
		return Saved{}, hosterr.New(hosterr.AlreadyExists, "saved state %s exists, and sandbox %s does not stand still with it", r.Saved, r.ID)
	case !hosterr.Is(err, hosterr.NotFound):
		return Saved{}, err
	case before != nil && before.Saved != r.Saved && before.Step == stepPaused:
		return Saved{}, hosterr.New(hosterr.Busy, "sandbox %s stands still for saved state %s", r.ID, before.Saved)
	}
	// The sentry would answer when it goes on, which nobody may ask for before this call has ended.
	if err := e.refuseFrozen(root); err != nil {
		return Saved{}, err
	}
	// A caller that hangs up does not have a sandbox stopped for half a state.
	ctx, cancel := untilDeadline(ctx)
	defer cancel()
	if err := e.unpause(ctx, root); err != nil {
		return Saved{}, err
	}
	m, err := e.save(ctx, root, r)
	if err != nil {
		return Saved{}, errors.Join(asSaveFailure(err), e.abandonSave(ctx, root, r.Saved))
	}
	return e.describe(m), nil
}

// asSaveFailure keeps what says more than that it failed.
func asSaveFailure(err error) error {
	switch hosterr.Of(err) {
	case hosterr.NoSpace, hosterr.DeadlineExceeded, hosterr.Busy, hosterr.SaveFailed, hosterr.RuntimeMissing:
		return err
	}
	if strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return hosterr.New(hosterr.NoSpace, "%v", err)
	}
	return hosterr.New(hosterr.SaveFailed, "%v", err)
}

// abandonWithin is longer than a sentry takes to end the save that it is in: it goes on only after that.
const abandonWithin = 2 * time.Minute

// abandonSave removes what was written and lets the guest go on.
func (e *Engine) abandonSave(ctx context.Context, root record, saved string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWithin)
	defer cancel()
	return errors.Join(e.discard(saved), e.savedDir(saved+partial).RemoveAll(), e.unpause(ctx, root))
}

func (e *Engine) save(ctx context.Context, root record, r SaveRequest) (m manifest, err error) {
	containers, err := e.saveable(ctx, root)
	if err != nil {
		return m, err
	}
	if err := e.checkRoomFor(root); err != nil {
		return m, err
	}
	if m, err = e.describeSave(root, containers, r); err != nil {
		return m, err
	}
	work := e.savedDir(r.Saved + partial)
	if err := errors.Join(e.ensureDirs(), work.RemoveAll()); err != nil {
		return m, err
	}
	if err := work.Mkdir(0o700); err != nil {
		return m, err
	}
	files, err := openStateFiles(work)
	defer func() { closeStateFiles(files, err != nil) }()
	if err != nil {
		return m, err
	}
	m.TakenAt = time.Now().UTC()
	if err := e.pause(ctx, root, r.Saved); err != nil {
		return m, err
	}
	if err := e.writeState(ctx, root, files); err != nil {
		return m, err
	}
	if m.Files, err = e.settleState(containers, files); err != nil {
		return m, err
	}
	// What was written may have taken more than was reckoned with.
	if err := e.Room(0); err != nil {
		return m, err
	}
	m.StandstillMs = float64(time.Since(m.TakenAt).Microseconds()) / 1000
	return m, e.publish(work, m)
}

// saveable are the containers of a sandbox, the root first. One that has ended is taken out of the sentry, which would wait for it at the restore.
func (e *Engine) saveable(ctx context.Context, root record) ([]record, error) {
	all, err := e.records()
	if err != nil {
		return nil, err
	}
	list := []record{root}
	for _, r := range all {
		if r.SandboxID != root.ID || r.isRoot() {
			continue
		}
		if !r.Running {
			return nil, hosterr.New(hosterr.Busy, "container %s is being started", r.ID)
		}
		if !e.ended(r) {
			list = append(list, r)
			continue
		}
		if !e.isKnownTo(Runsc, r.ID) {
			continue
		}
		by, err := e.driverOf(r)
		if err != nil {
			return nil, err
		}
		if _, err := e.call(ctx, by, r.ID, "delete", "--force", runtimeID(r.ID)); err != nil && !hosterr.Is(err, hosterr.NotFound) {
			return nil, err
		}
	}
	// Where they have no name the sentry knows them by the order of their start.
	slices.SortStableFunc(list[1:], func(a, b record) int { return a.StartedAt.Compare(b.StartedAt) })
	return list, nil
}

// describeSave is what is known of a state before it is written.
func (e *Engine) describeSave(root record, containers []record, r SaveRequest) (manifest, error) {
	flags, err := cpuFlags()
	m := manifest{ID: r.Saved, Reusable: r.Reusable, RuntimeVersion: root.RuntimeVersion, CPUFlags: flags}
	for _, r := range containers {
		digest, digestErr := e.rootfs.SourceDigest(r.Rootfs)
		err = errors.Join(err, digestErr)
		m.Containers = append(m.Containers, manifestContainer{ID: r.ID, Name: r.Name, Root: r.isRoot(), SourceDigest: digest, Programs: r.Programs})
	}
	return m, err
}

// checkRoomFor refuses to begin what the disk cannot hold.
func (e *Engine) checkRoomFor(root record) error {
	if root.Cgroup == "" {
		return e.Room(0)
	}
	stats, err := e.cgroups.Stats(root.Cgroup)
	if err != nil {
		return err
	}
	return e.Room(stats.WorkingSetBytes)
}

func openStateFiles(dir confine.Entry) ([]*os.File, error) {
	var files []*os.File
	for _, name := range stateFiles {
		f, err := dir.In(name).Open(unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// closeStateFiles also empties what is given up: a sentry that could not write keeps a file open, and with it the room that it takes.
func closeStateFiles(files []*os.File, givenUp bool) {
	for _, f := range files {
		if givenUp {
			_ = f.Truncate(0)
		}
	}
	_ = closeAll(files)
}

// sentrySave has the names of the sentry's own structure, as far as they are used here.
type sentrySave struct {
	Metadata         map[string]string `json:"metadata"`
	ExcludeZeroPages bool              `json:"app_mf_exclude_committed_zero_pages"`
	HavePagesFile    bool              `json:"have_pages_file"`
	Resume           bool
}

// writeState has the sentry write. Resume: without it the sentry would end itself, also where it could not write; the stop of ours lasts.
// Pages are not compressed, so that a restore can go on before it has read all of them.
func (e *Engine) writeState(ctx context.Context, root record, files []*os.File) error {
	args := sentrySave{Metadata: map[string]string{"compression": "none"}, ExcludeZeroPages: true, HavePagesFile: true, Resume: true}
	if err := callSentry(ctx, e.controlSocket(root.ID), "containerManager.Checkpoint", args, nil, files...); err != nil {
		return fmt.Errorf("memory of sandbox %s: %w", root.ID, err)
	}
	return nil
}

// settleState brings to the disk what the sandbox had written to its files, and what the sentry wrote, and reads the latter back.
func (e *Engine) settleState(containers []record, files []*os.File) ([]manifestFile, error) {
	synced := make(chan error, 1)
	go func() { synced <- e.syncFiles(containers) }()
	var kept []manifestFile
	var failed error
	for i, f := range files {
		file, err := keepFile(stateFiles[i], f)
		failed = errors.Join(failed, err)
		kept = append(kept, file)
	}
	return kept, errors.Join(failed, <-synced)
}

// syncFiles writes every file system to the disk that a container may have written to, each once.
func (e *Engine) syncFiles(containers []record) error {
	seen := map[uint64]bool{}
	for _, r := range containers {
		places, err := e.writablePlaces(r)
		if err != nil {
			return err
		}
		for _, place := range places {
			if err := syncFileSystem(place, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// writablePlaces are a container's root file system and the mounts that it may write to.
func (e *Engine) writablePlaces(r record) ([]confine.Entry, error) {
	text, err := e.inDir(r.ID, "config.json").ReadFile(configBytesMax)
	if err != nil {
		return nil, err
	}
	var spec ociSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	places := []confine.Entry{e.rootfs.At(r.Rootfs)}
	for _, m := range spec.Mounts {
		if m.Type == "bind" && slices.Contains(m.Options, "rw") {
			places = append(places, e.inDir(r.ID, "mounts").In(filepath.Base(m.Source)))
		}
	}
	return places, nil
}

func syncFileSystem(place confine.Entry, seen map[uint64]bool) error {
	f, err := place.Open(unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return err
	}
	if seen[stat.Dev] {
		return nil
	}
	seen[stat.Dev] = true
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("syncfs %s: %w", place.Path(), err)
	}
	return nil
}

// publish gives a state its record and then its name.
func (e *Engine) publish(work confine.Entry, m manifest) error {
	if err := durable.Write(work.In(manifestName), &m); err != nil {
		return err
	}
	if err := work.Rename(e.savedDir(m.ID)); err != nil {
		return err
	}
	return syncDir(e.savedDir())
}

// Continue lets a stopped sandbox go on, after a state of it is gone for good.
func (e *Engine) Continue(ctx context.Context, r ContinueRequest) error {
	root, err := e.liveRoot(r.ID)
	if err != nil {
		return err
	}
	if r.Saved != "" {
		if err := instance.CheckID("saved", r.Saved); err != nil {
			return err
		}
		if err := e.discard(r.Saved); err != nil {
			return err
		}
	}
	// A state that is kept although its guest goes on fits the files no more.
	if p, err := e.readPause(r.ID); err != nil {
		return err
	} else if p != nil {
		if err := e.markUsed(p.Saved); err != nil {
			return err
		}
	}
	ctx, cancel := untilDeadline(ctx)
	defer cancel()
	return e.unpause(ctx, root)
}

// liveRoot is the record of a root container whose sandbox runs or stands still.
func (e *Engine) liveRoot(id string) (record, error) {
	r, err := e.readRecord(id)
	if err != nil {
		return r, err
	}
	if !r.isRoot() {
		return r, hosterr.New(hosterr.InvalidArgument, "id: %s is not a root container", id)
	}
	if !r.Running || !e.isAlive(r) || e.ended(r) {
		return r, hosterr.New(hosterr.Busy, "sandbox %s has ended, or has not started", id)
	}
	return r, nil
}

// settleSaves continues where a helper was killed: what is not complete goes, and a sandbox that stands still without a complete state goes on.
func (e *Engine) settleSaves() error {
	if err := e.tidySaved(); err != nil {
		return err
	}
	records, err := e.records()
	if err != nil {
		return err
	}
	// All of them at once: a sentry may still be in the save that it was asked for. No verb is carried out before, which could let one go on twice.
	var going sync.WaitGroup
	defer going.Wait()
	for _, r := range records {
		p, err := e.readPause(r.ID)
		if err != nil {
			return err
		}
		if p == nil || !r.isRoot() {
			continue
		}
		if _, err := e.readSaved(p.Saved); err == nil && p.Step == stepPaused {
			continue
		}
		going.Go(func() { e.continueAbandoned(r) })
	}
	return nil
}

func (e *Engine) continueAbandoned(r record) {
	ctx, cancel := context.WithTimeout(context.Background(), abandonWithin)
	defer cancel()
	if err := e.unpause(ctx, r); err != nil {
		slog.Error("a sandbox that was stopped to be saved does not go on", "container", r.ID, "error", err.Error())
	}
}
