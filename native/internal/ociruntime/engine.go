package ociruntime

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/cgroup"
	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/durable"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/netslot"
	"agent-sandbox.dev/native/internal/rootfs"
	"agent-sandbox.dev/native/internal/ruleset"
	"agent-sandbox.dev/native/internal/volume"
	"golang.org/x/sys/unix"
)

// The runtimes.
const (
	Runsc = "runsc"
	Runc  = "runc"
)

// Config is what the operator chose.
type Config struct {
	// RunscPath and RuncPath are the runtimes' programs; empty: not available.
	RunscPath, RuncPath string
	// AllowRunc lets containers start under runc. It is the operator's flag: no verb can set it.
	AllowRunc bool
	// HostPaths are the prefixes that hostPath mounts may be below.
	HostPaths []string
	// NodeUID and NodeGID are the node's user, the only caller besides root.
	NodeUID, NodeGID int
	// RouterUID opens connections to sandboxes, as the node does.
	RouterUID int
	// SelfPath is this program, which also is the parent of a runc container.
	SelfPath string
}

// Engine runs containers. What it knows is on disk; the watchers only save asking.
type Engine struct {
	inst   instance.Instance
	config Config
	// tree is the helper's part of the data directory, run what the runtimes keep while the machine runs.
	tree, run *confine.Tree
	rootfs    *rootfs.Store
	volumes   *volume.Store
	cgroups   *cgroup.Hierarchy
	network   *netslot.Network
	rules     *ruleset.Coverage
	shelf     *durable.Shelf
	// node is whose paths a container's output goes to.
	node   confine.Caller
	bootID string
	// Room refuses so many more bytes on the disk where they do not fit beside what is kept free.
	Room func(bytes int64) error

	mu       sync.Mutex
	watchers map[string]*watcher
	restores map[string]*restoreWait
	features map[string]Features
	// waits is which builds can wait with a restored guest, as far as it was asked.
	waits  map[string]bool
	builds builds
}

// Features is what a runtime of this machine can do.
type Features struct {
	Runtime        string `json:"runtime"`
	Available      bool   `json:"available"`
	Reason         string `json:"reason,omitempty"`
	Version        string `json:"version,omitempty"`
	MultiContainer bool   `json:"multiContainer"`
}

// Parts are what containers are made of.
type Parts struct {
	Tree, Run *confine.Tree
	Rootfs    *rootfs.Store
	Volumes   *volume.Store
	Cgroups   *cgroup.Hierarchy
	Network   *netslot.Network
	Rules     *ruleset.Coverage
	Shelf     *durable.Shelf
	Node      confine.Caller
}

// NewEngine opens the containers of an instance and watches those that run.
func NewEngine(inst instance.Instance, config Config, parts Parts) (*Engine, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	e := &Engine{
		inst: inst, config: config, tree: parts.Tree, run: parts.Run, rootfs: parts.Rootfs, volumes: parts.Volumes, cgroups: parts.Cgroups, network: parts.Network, rules: parts.Rules,
		shelf: parts.Shelf, node: parts.Node,
		bootID:   strings.TrimSpace(string(boot)),
		watchers: map[string]*watcher{}, restores: map[string]*restoreWait{}, features: map[string]Features{}, waits: map[string]bool{},
		builds: builds{dir: parts.Tree.At("runtimes")},
	}
	if err := e.ensureDirs(); err != nil {
		return nil, err
	}
	e.features[Runsc] = e.installRunsc(config.RunscPath)
	e.features[Runc] = probe(Runc, config.RuncPath)
	// Orphans of the runtimes come to us instead of to init, so that none stays a zombie where init does not reap.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	go reapOrphans()
	go e.trimLogs()
	if err := errors.Join(e.adopt(), e.settleSaves(), e.removeUnusedBuilds()); err != nil {
		return nil, err
	}
	return e, errors.Join(e.watchRestores(), e.watchAll())
}

// installRunsc makes a program the current build.
func (e *Engine) installRunsc(path string) Features {
	f := probe(Runsc, path)
	if !f.Available {
		return f
	}
	if err := e.builds.install(f.Version, path); err != nil {
		return Features{Runtime: Runsc, Reason: "runsc cannot be installed: " + err.Error()}
	}
	e.builds.current = f.Version
	return f
}

// ensureDirs makes the places that a sweep of everything takes away, and refuses to go on where anybody but root could lead the paths elsewhere
// that runtimes are given: all of them are below these directories.
func (e *Engine) ensureDirs() error {
	if err := errors.Join(e.tree.AssertPath(), e.run.AssertPath()); err != nil {
		return err
	}
	for _, dir := range []confine.Entry{e.tree.At("containers"), e.savedDir(), e.run.At(Runsc), e.run.At(Runc), e.run.At("exec")} {
		if err := dir.EnsureRootDir(0o700, 0); err != nil {
			return err
		}
	}
	return nil
}

// Features is what was found at start.
func (e *Engine) Features() []Features { return []Features{e.features[Runsc], e.features[Runc]} }

func probe(name, path string) Features {
	f := Features{Runtime: name}
	if path == "" {
		f.Reason = name + " not found; run agent-sandbox doctor --fix"
		return f
	}
	version, err := versionOf(name, path)
	if err != nil {
		f.Reason = name + " does not run: " + err.Error()
		return f
	}
	f.Available, f.Version, f.MultiContainer = true, version, true
	return f
}

// versionOf names the exact build: runsc built from its module says "VERSION_MISSING", but carries the module's version.
func versionOf(name, path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(strings.TrimPrefix(strings.SplitN(string(output), "\n", 2)[0], name+" version "))
	if info, err := buildinfo.ReadFile(path); err == nil && name == Runsc {
		for _, module := range append(info.Deps, &info.Main) {
			if module.Path == "gvisor.dev/gvisor" && module.Version != "(devel)" {
				version = module.Version
			}
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest, err := digestOf(f)
	return version + "+" + digest, err
}

func (e *Engine) available(runtime string) error {
	if f := e.features[runtime]; !f.Available {
		return hosterr.New(hosterr.RuntimeMissing, "%s", f.Reason)
	}
	return nil
}

// runtimeID is a container's name at its runtime. runsc takes the beginning of a name for the whole; as no id holds the last character, no name
// here is the beginning of another.
func runtimeID(id string) string { return id + "_" }

// globalArgs are the flags before a runtime's subcommand.
func (e *Engine) globalArgs(runtime string, log confine.Entry) []string {
	if runtime == Runc {
		return []string{"--root", e.run.At(Runc).Path(), "--log", log.Path(), "--log-format", "json"}
	}
	// Raw sockets still need CAP_NET_RAW inside; what they forge is dropped by the rule set.
	return []string{
		"--root=" + e.run.At(Runsc).Path(), "--platform=systrap", "--network=sandbox", "--overlay2=none", "--ignore-cgroups",
		"--host-uds=none", "--host-fifo=none", "--net-raw", "--log=" + log.Path(), "--log-format=json",
	}
}

// call runs a short subcommand of a runtime to its end. Its output goes to a file: a runtime's child may keep a pipe open for ever.
func (e *Engine) call(ctx context.Context, by driver, id string, args ...string) (string, error) {
	if err := e.ensureDirs(); err != nil {
		return "", err
	}
	work, err := e.run.At("exec").MakeTempDir("call-", 0o700)
	if err != nil {
		return "", err
	}
	defer func() { _ = work.RemoveAll() }()
	output, err := work.In("output").Open(unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer output.Close()
	cmd := exec.CommandContext(ctx, by.program, append(e.globalArgs(by.runtime, work.In("log")), args...)...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = runtimeEnv()
	err = runTracked(cmd)
	text, readErr := io.ReadAll(io.NewSectionReader(output, 0, outputBytesMax))
	if readErr != nil {
		return "", readErr
	}
	if err != nil {
		return "", e.failure(ctx, by.runtime, id, args[0], err, lastMessage(work.In("log"), text))
	}
	return string(text), nil
}

// outputBytesMax is far more than a runtime says in answer to a short subcommand.
const outputBytesMax = 16 << 20

// runtimeEnv is a runtime's whole environment: nothing of a request reaches it.
func runtimeEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

func (e *Engine) failure(ctx context.Context, runtime, id, verb string, err error, message string) error {
	if ctx.Err() != nil {
		return hosterr.New(hosterr.DeadlineExceeded, "%s %s %s: %v", runtime, verb, id, ctx.Err())
	}
	return hosterr.New(classify(message), "%s %s %s: %s (%v)", runtime, verb, id, message, err)
}

// classify recognises errors by their text, because the runtimes leave no choice; classify_test.go holds recorded outputs.
func classify(message string) hosterr.Code {
	text := strings.ToLower(message)
	contains := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case contains("container does not exist", "no such container", "loading container: file does not exist", "does not exist: file does not exist"):
		return hosterr.NotFound
	case contains("executable file not found", "error finding executable", "no such file or directory: unknown", "exec format error", "failed to load /", "unable to start container process", "is a directory", "starting root container: starting sandbox: failed to load"):
		return hosterr.StartFailed
	case contains("no space left", "disk quota exceeded"):
		return hosterr.NoSpace
	case contains("not running", "container is paused", "cannot exec in a stopped", "cannot exec in container in state", "not paused", "already paused", "no longer running"):
		return hosterr.Busy
	}
	return hosterr.RuntimeFailed
}

// lastMessage is the last error of a runtime's log, or else of its output.
func lastMessage(log confine.Entry, output []byte) string {
	text, err := log.ReadFile(2 * logBytesMax)
	if err == nil {
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		for i := len(lines) - 1; i >= 0; i-- {
			var entry struct {
				Msg   string `json:"msg"`
				Level string `json:"level"`
			}
			if json.Unmarshal(lines[i], &entry) == nil && entry.Msg != "" && (entry.Level == "error" || entry.Level == "fatal" || entry.Level == "warning") {
				return entry.Msg
			}
		}
	}
	return strings.TrimSpace(string(output))
}

var errNoRecord = errors.New("no record")
