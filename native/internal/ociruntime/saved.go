package ociruntime

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"golang.org/x/sys/unix"
)

// SavedContainer is a container of a saved sandbox.
type SavedContainer struct {
	ID   string `json:"id"`
	Root bool   `json:"root"`
}

// Saved is the memory of a sandbox on disk, complete.
type Saved struct {
	ID             string           `json:"id"`
	TakenAt        time.Time        `json:"takenAt"`
	MemoryBytes    int64            `json:"memoryBytes"`
	StandstillMs   float64          `json:"standstillMs"`
	RuntimeVersion string           `json:"runtimeVersion"`
	Containers     []SavedContainer `json:"containers"`
	Reusable       bool             `json:"reusable,omitempty"`
	// Unusable is why this machine cannot restore it.
	Unusable string `json:"unusable,omitempty"`
}

// manifest is the record of a saved state: written last, so that a state without one was never complete.
type manifest struct {
	ID             string              `json:"id"`
	Reusable       bool                `json:"reusable,omitempty"`
	TakenAt        time.Time           `json:"takenAt"`
	StandstillMs   float64             `json:"standstillMs"`
	RuntimeVersion string              `json:"runtimeVersion"`
	CPUFlags       []string            `json:"cpuFlags"`
	Containers     []manifestContainer `json:"containers"`
	Files          []manifestFile      `json:"files"`
}

type manifestContainer struct {
	ID string `json:"id"`
	// Name is what the sentry knows it by in every sandbox that it is restored into; empty: by the order of its start.
	Name string `json:"name,omitempty"`
	Root bool   `json:"root"`
	// SourceDigest is what its root file system is made of below the writable layer.
	SourceDigest string `json:"sourceDigest"`
	// Programs are the programs of ours that its processes run, by target: pages of them that memory does not have are read from the file.
	Programs map[string]string `json:"programs,omitempty"`
}

type manifestFile struct {
	Name      string   `json:"name"`
	SizeBytes int64    `json:"sizeBytes"`
	Sums      []uint32 `json:"sums"`
}

// Check refuses what is not the record of a saved state.
func (m *manifest) Check() error {
	if m.RuntimeVersion == "" || len(m.Containers) == 0 || len(m.Files) != len(stateFiles) {
		return errors.New("it names no build, no container or not all files")
	}
	for i, file := range m.Files {
		if file.Name != stateFiles[i] || file.SizeBytes <= 0 || int64(len(file.Sums)) != (file.SizeBytes+pieceBytes-1)/pieceBytes {
			return fmt.Errorf("files[%d]: %s of %d bytes is not one", i, file.Name, file.SizeBytes)
		}
	}
	for _, c := range m.Containers {
		if err := instance.CheckID("containers", c.ID); err != nil {
			return err
		}
		for target, name := range c.Programs {
			if err := checkProgram("programs["+target+"]", name); err != nil {
				return err
			}
		}
	}
	return errors.Join(instance.CheckID("id", m.ID), checkBuild(m.RuntimeVersion))
}

// stateFiles are the files of a saved state by runsc's names, in the order in which the sentry takes them.
var stateFiles = []string{"checkpoint.img", "pages_meta.img", "pages.img"}

const (
	manifestName = "manifest.json"
	// usedName says that the guest went on, restored or continued: its files are of another moment since.
	usedName = "used.json"
	// partial ends the name of a state that is being written or removed; no id has a dot.
	partial = ".partial"
)

// used is when the guest of a state went on.
type used struct {
	At time.Time `json:"at"`
}

// Check refuses what does not say when.
func (u *used) Check() error {
	if u.At.IsZero() {
		return errors.New("at: is missing")
	}
	return nil
}

func (e *Engine) savedDir(parts ...string) confine.Entry { return e.tree.At("snapshots").In(parts...) }

func (e *Engine) readSaved(id string) (manifest, error) {
	if err := instance.CheckID("saved", id); err != nil {
		return manifest{}, err
	}
	var m manifest
	err := e.shelf.Read(e.savedDir(id, manifestName), &m)
	if errors.Is(err, os.ErrNotExist) {
		return m, hosterr.New(hosterr.NotFound, "saved state %s does not exist", id)
	}
	return m, err
}

// ListSaved is every complete saved state.
func (e *Engine) ListSaved() ([]Saved, error) {
	all, err := e.manifests()
	if err != nil {
		return nil, err
	}
	list := []Saved{}
	for _, m := range all {
		list = append(list, e.describe(m))
	}
	return list, nil
}

func (e *Engine) manifests() ([]manifest, error) {
	entries, err := e.savedDir().ReadDir()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []manifest
	for _, entry := range entries {
		m, err := e.readSaved(entry.Name())
		if hosterr.Is(err, hosterr.NotFound) || hosterr.Is(err, hosterr.InvalidArgument) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func (e *Engine) describe(m manifest) Saved {
	s := Saved{ID: m.ID, Reusable: m.Reusable, TakenAt: m.TakenAt, StandstillMs: m.StandstillMs, RuntimeVersion: m.RuntimeVersion}
	for _, c := range m.Containers {
		s.Containers = append(s.Containers, SavedContainer{ID: c.ID, Root: c.Root})
	}
	for _, file := range m.Files {
		if stat, err := e.savedDir(m.ID, file.Name).Lstat(); err == nil {
			s.MemoryBytes += stat.Blocks * 512
		}
	}
	if err := e.fits(m); err != nil {
		s.Unusable = err.Error()
	}
	return s
}

// fits is whether this machine can restore a state, as far as can be told without reading it.
func (e *Engine) fits(m manifest) error {
	var before used
	if err := e.shelf.Read(e.savedDir(m.ID, usedName), &before); err == nil {
		return hosterr.New(hosterr.RestoreRefused, "the guest of saved state %s went on at %s: its files have changed since", m.ID, before.At.Format(time.RFC3339))
	}
	var last begun
	if err := e.shelf.Read(e.savedDir(m.ID, begunName), &last); err == nil {
		return hosterr.New(hosterr.RestoreRefused, "a restore of saved state %s began at %s and did not end: its guest may have changed the files since, which the memory does not fit any more; %s", m.ID, last.At.Format(time.RFC3339), coldAdvice)
	}
	if !e.builds.has(m.RuntimeVersion) {
		return hosterr.New(hosterr.RestoreRefused, "saved state %s was made by runsc %s, which is missing from %s", m.ID, m.RuntimeVersion, e.builds.dir.Path())
	}
	present, err := cpuFlags()
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(m.CPUFlags), func(flag string) bool { return slices.Contains(present, flag) })
	if len(missing) > 0 {
		return hosterr.New(hosterr.RestoreRefused, "saved state %s was made on another processor: this one lacks %s", m.ID, strings.Join(missing, ", "))
	}
	return nil
}

// cpuFlags is what the kernel says that the first processor can do.
func cpuFlags() ([]string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(line, ":")
		// The second is the word on ARM.
		if name = strings.TrimSpace(name); name == "flags" || name == "Features" {
			return strings.Fields(value), nil
		}
	}
	return nil, errors.New("/proc/cpuinfo names no flags")
}

// CopySaved gives a state a second name, under which it may be restored more than once: its files never change, so that both names share them. One that is
// there already is left as it is.
func (e *Engine) CopySaved(from, to string) (Saved, error) {
	if err := instance.CheckID("to", to); err != nil {
		return Saved{}, err
	}
	if from == to {
		return Saved{}, hosterr.New(hosterr.InvalidArgument, "to: %s is the state itself", to)
	}
	if found, err := e.readSaved(to); !hosterr.Is(err, hosterr.NotFound) {
		return e.describe(found), err
	}
	m, err := e.readSaved(from)
	if err != nil {
		return Saved{}, err
	}
	if err := e.fits(m); err != nil {
		return Saved{}, err
	}
	work := e.savedDir(to + partial)
	if err := work.RemoveAll(); err != nil {
		return Saved{}, err
	}
	if err := work.Mkdir(0o700); err != nil {
		return Saved{}, err
	}
	for _, name := range stateFiles {
		if err := e.savedDir(from, name).Link(work.In(name)); err != nil {
			return Saved{}, errors.Join(err, work.RemoveAll())
		}
	}
	m.ID, m.Reusable = to, true
	if err := e.publish(work, m); err != nil {
		return Saved{}, errors.Join(err, e.discard(to), work.RemoveAll())
	}
	return e.describe(m), nil
}

// DiscardSaved removes a saved state. It is gone for good when this returns, also after a loss of power.
func (e *Engine) DiscardSaved(id string) error {
	if err := instance.CheckID("id", id); err != nil {
		return err
	}
	records, err := e.records()
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.RestoredFrom == id && r.isRoot() && e.isAlive(r) && !e.hasRestored(r.ID) {
			return hosterr.New(hosterr.Busy, "saved state %s is being read by sandbox %s", id, r.ID)
		}
	}
	return e.discard(id)
}

func (e *Engine) discard(id string) error {
	gone := e.savedDir(id + partial)
	if err := gone.RemoveAll(); err != nil {
		return err
	}
	if err := e.savedDir(id).Rename(gone); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	// The name is what makes it a saved state; the rest may take its time.
	if err := errors.Join(syncDir(e.savedDir()), gone.RemoveAll()); err != nil {
		return err
	}
	return e.removeUnusedBuilds()
}

// tidySaved removes what was being written or removed when a helper was killed.
func (e *Engine) tidySaved() error {
	entries, err := e.savedDir().ReadDir()
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), partial) {
			slog.Warn("a saved state that is not complete is removed", "name", entry.Name())
			err = errors.Join(err, e.savedDir(entry.Name()).RemoveAll())
		}
	}
	return err
}

// SavedNames are the saved states, those included whose record could not be read.
func (e *Engine) SavedNames() ([]string, error) { return instance.IDsIn(e.savedDir(), "") }

// keepFile writes a file of a state to the disk and takes its checksums.
func keepFile(name string, f *os.File) (manifestFile, error) {
	info, err := f.Stat()
	if err != nil {
		return manifestFile{}, err
	}
	if info.Size() == 0 || (name == stateFiles[2] && info.Size()%int64(os.Getpagesize()) != 0) {
		return manifestFile{}, hosterr.New(hosterr.SaveFailed, "%s has %d bytes, which is not a whole file", name, info.Size())
	}
	synced := make(chan error, 1)
	go func() { synced <- f.Sync() }()
	sums, err := sumsOf(f, info.Size())
	if err := errors.Join(err, <-synced); err != nil {
		return manifestFile{}, err
	}
	after, err := f.Stat()
	if err == nil && after.Size() != info.Size() {
		err = hosterr.New(hosterr.SaveFailed, "%s changes while it is read", name)
	}
	return manifestFile{Name: name, SizeBytes: info.Size(), Sums: sums}, err
}

// verify reads all of a state and compares it with its record.
func (e *Engine) verify(m manifest) error {
	for _, file := range m.Files {
		if err := e.verifyFile(m.ID, file); err != nil {
			return hosterr.New(hosterr.RestoreFailed, "saved state %s: %s: %v", m.ID, file.Name, err)
		}
	}
	return nil
}

func (e *Engine) verifyFile(id string, file manifestFile) error {
	f, err := e.savedDir(id, file.Name).Open(unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != file.SizeBytes {
		return fmt.Errorf("%d bytes are there, %d were written", info.Size(), file.SizeBytes)
	}
	sums, err := sumsOf(f, file.SizeBytes)
	if err != nil {
		return err
	}
	if !slices.Equal(sums, file.Sums) {
		return errors.New("its content is not what was written")
	}
	return nil
}

// markUsed records that the guest of a state went on, unless the state may be restored more than once.
func (e *Engine) markUsed(id string) error {
	if m, err := e.readSaved(id); err == nil && m.Reusable {
		return nil
	}
	err := durable.Write(e.savedDir(id, usedName), &used{At: time.Now().UTC()})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
