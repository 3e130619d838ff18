// Command sandbox-host is the only privileged program of an engine. It carries out a closed set of verbs over a Unix socket and decides nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"agent-sandbox.dev/native/internal/hostapi"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/ociruntime"
	"golang.org/x/sys/unix"
)

// version is set by the linker.
var version = "dev"

// Threads that enter a namespace are ended by the Go runtime, except the first one, which it cannot end: it is kept for this goroutine.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) > 3 && os.Args[1] == "container-parent" {
		os.Exit(ociruntime.Parent(os.Args[2], os.Args[3:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "archive" {
		if err := archiveCommand(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox-host:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-host:", err)
		os.Exit(1)
	}
}

// waitingShare was measured: a start takes a fifth less than with one per processor, and more of them only wake each other.
const waitingShare = 2

type options struct {
	dataDir, runRoot, socket, runsc, runc, hostPaths, logLevel string
	uid, gid, routerUID                                        int
	allowRunc                                                  bool
	limits                                                     hostapi.Limits
}

func parse() options {
	var o options
	flag.StringVar(&o.dataDir, "data-dir", "/var/lib/agent-sandbox", "directory that holds everything of the instance")
	flag.StringVar(&o.runRoot, "run-dir", "/run/agent-sandbox", "directory of sockets and runtime state, one subdirectory per instance")
	flag.StringVar(&o.socket, "socket", "", "path of the socket (default <run-dir>/<instance>/host.sock)")
	flag.StringVar(&o.runsc, "runsc", "runsc", "the gVisor runtime")
	flag.StringVar(&o.runc, "runc", "runc", "the runtime for trusted containers; optional")
	flag.BoolVar(&o.allowRunc, "allow-runc", false, "start containers of the trusted tier; those that run are ended in any case")
	flag.StringVar(&o.hostPaths, "allow-host-path", "", "comma-separated prefixes that hostPath mounts may be below (default none)")
	flag.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flag.IntVar(&o.uid, "node-uid", 0, "the node's user, the only one besides root that may speak to this program")
	flag.IntVar(&o.gid, "node-gid", 0, "the node's group, which may open the socket")
	flag.IntVar(&o.routerUID, "router-uid", 0, "the router's user, which besides root and the node may open connections to sandboxes")
	flag.Int64Var(&o.limits.Sandboxes.MemoryBytes, "sandboxes-memory", 0, "bytes of memory that all sandboxes together may take (default no limit)")
	flag.Int64Var(&o.limits.Sandboxes.Pids, "sandboxes-pids", 0, "processes and threads that all sandboxes together may have (default no limit)")
	flag.Int64Var(&o.limits.DiskFloorBytes, "disk-floor", 0, "bytes of the disk that are kept free: with less, nothing is made that takes room (default none)")
	flag.Parse()
	return o
}

func run() error {
	o := parse()
	if os.Geteuid() != 0 {
		return errors.New("must be started by root")
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return err
	}
	// The helper ends with its supervisor: two of them on one instance would undo each other's work. Sandboxes have other parents and go on.
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return err
	}
	if os.Getppid() != parent {
		return errors.New("the supervisor is gone")
	}
	// Sandboxes are this program's children: none of them inherits that the engine's processes are to be spared when memory runs out.
	if err := ociruntime.ForgoOOMProtection(); err != nil {
		return err
	}
	if err := ociruntime.BoundOpenFiles(); err != nil {
		return err
	}
	// Verbs wait in the kernel, for mounts, groups and links, and the runtime takes up to ten milliseconds to notice that a processor of its
	// own is held by one that waits: with no more of them than the machine has, verbs would stand in line behind each other's waits.
	runtime.GOMAXPROCS(waitingShare * runtime.NumCPU())
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("component", "sandbox-host")
	slog.SetDefault(log)
	// What others create below our directories has exactly the modes we name.
	unix.Umask(0o022)
	inst, err := instance.New(o.dataDir, o.runRoot)
	if err != nil {
		return err
	}
	config, err := configOf(o)
	if err != nil {
		return err
	}
	host, err := hostapi.Open(inst, version, config, o.limits)
	if err != nil {
		return err
	}
	socket := o.socket
	if socket == "" {
		socket = inst.Run("host.sock")
	}
	listener, err := hostapi.Listen(socket, o.gid)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	log.Info("listening", "socket", socket, "instance", inst.ID, "runtimes", host.Engine.Features())
	return hostapi.NewServer(host, log).Serve(ctx, listener)
}

func configOf(o options) (ociruntime.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return ociruntime.Config{}, err
	}
	config := ociruntime.Config{RunscPath: find(o.runsc), RuncPath: find(o.runc), AllowRunc: o.allowRunc, NodeUID: o.uid, NodeGID: o.gid, RouterUID: o.routerUID, SelfPath: self}
	for _, prefix := range strings.Split(o.hostPaths, ",") {
		if prefix == "" {
			continue
		}
		if !filepath.IsAbs(prefix) || filepath.Clean(prefix) == "/" {
			return config, fmt.Errorf("allow-host-path: %q is not an absolute path below /", prefix)
		}
		config.HostPaths = append(config.HostPaths, filepath.Clean(prefix))
	}
	return config, nil
}

// find is the absolute path of a program, or nothing when it is not installed.
func find(name string) string {
	if name == "" {
		return ""
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	return absolute
}
