// Command sandboxd is the daemon inside a sandbox: it runs processes, moves files and, as PID 1, starts the entrypoint.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"agent-sandbox.dev/native/internal/beneath"
	"agent-sandbox.dev/native/internal/daemon"
	"agent-sandbox.dev/native/internal/initd"
	"agent-sandbox.dev/native/internal/legacy"
	"agent-sandbox.dev/native/internal/process"
	"agent-sandbox.dev/native/internal/supervise"
)

// version and revision are set by the linker.
var (
	version  = "0.0.0-dev"
	revision = "unknown"
)

// initShutdownTimeout is what open streams get when the entrypoint has ended: enough to be told so.
const initShutdownTimeout = 500 * time.Millisecond

func main() {
	if len(os.Args) > 1 && os.Args[1] == process.LimitCommand {
		fmt.Fprintln(os.Stderr, "sandboxd:", process.ExecWithLimits(os.Args[2:]))
		os.Exit(126)
	}
	stayLean()
	if len(os.Args) == 2 && os.Args[1] == pauseCommand {
		fmt.Fprintln(os.Stderr, "sandboxd:", runPause())
		os.Exit(1)
	}
	if known, err := runOnce(os.Args[1:]); known {
		if err != nil {
			fmt.Fprintln(os.Stderr, "sandboxd:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	code, err := run(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandboxd:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	c, err := parseConfig(args, os.Getenv, os.Stderr)
	if err != nil {
		return 1, err
	}
	if c.showVersion {
		fmt.Printf("sandboxd, version %s (revision: %s)\n  go version:       %s\n  compiler:         %s\n  platform:         %s/%s\n",
			version, revision, runtime.Version(), runtime.Compiler, runtime.GOOS, runtime.GOARCH)
		return 0, nil
	}
	if err := c.resolveDirectories(); err != nil {
		return 1, err
	}
	reaper := process.NewReaper()
	registry, err := process.NewRegistry(reaper, process.Environment(), c.processesMax)
	if err != nil {
		return 1, err
	}
	journal := initd.NewJournal(c.logDir, c.logBytesMax, max(c.logFilesMax, 1))
	services := supervise.New(registry, journal)
	server, err := newServer(c, registry, journal, services)
	if err != nil {
		return 1, err
	}
	if c.mode == modeInit {
		return runInit(c, initParts{reaper, registry, journal, services}, server)
	}
	adoptOrphans(reaper)
	return serve(c, server)
}

func adoptOrphans(reaper *process.Reaper) {
	if os.Getpid() == 1 {
		reaper.AdoptOrphans()
		return
	}
	// Where the kernel cannot hand orphans over they are somebody else's.
	_ = process.BecomeSubreaper()
}

func newServer(c *config, registry *process.Registry, journal *initd.Journal, services *supervise.Supervisor) (*daemon.Server, error) {
	root, err := beneath.New(c.rootDir, "")
	if err != nil {
		return nil, fmt.Errorf("root directory: %w", err)
	}
	fileSystem, err := beneath.New(c.fileSystemRoot, c.workDir)
	if err != nil {
		return nil, fmt.Errorf("file system root: %w", err)
	}
	options := daemon.Options{
		Registry: registry, Journal: journal, Services: services, Root: root, FileSystem: fileSystem, MetadataPrefix: c.metadataPrefix, Environment: process.Environment(),
		Rest: releaseMemory, Answered: releaseStartupPages,
		Legacy: &legacy.Runtime{Registry: registry, Directory: c.legacyDirectory, Timeout: legacyTimeout},
	}
	if c.tokenFile != "" {
		options.Token = daemon.NewToken(c.tokenFile, time.Now)
	}
	return daemon.NewServer(options), nil
}

// serve runs until it gets a signal to stop.
func serve(c *config, server *daemon.Server) (int, error) {
	listeners, err := daemon.Listen(c.listen)
	if err != nil {
		return 1, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	releaseStartupPages()
	slog.Info("sandboxd listening", "version", version, "sha", revision, "listen", c.listen, "rootDir", c.rootDir)
	if err := server.Serve(ctx, listeners, c.idleTimeout, c.shutdownTimeout); err != nil {
		return 1, err
	}
	return 0, nil
}

// initParts are what runs processes beside the server.
type initParts struct {
	reaper   *process.Reaper
	registry *process.Registry
	journal  *initd.Journal
	services *supervise.Supervisor
}

// runInit serves beside the entrypoint and ends with it.
func runInit(c *config, parts initParts, server *daemon.Server) (int, error) {
	listeners, err := daemon.Listen(c.listen)
	if err != nil {
		return 1, err
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listeners, c.idleTimeout, initShutdownTimeout) }()
	if c.handshake {
		sayReady()
	}
	// After the port is open, because a pod is not ready before, and signals take their time.
	adoptOrphans(parts.reaper)
	signals := initd.Signals()
	if c.handshake {
		if err := errors.Join(awaitGo(os.Stdin), giveUpStandardStreams()); err != nil {
			stop()
			return 1, errors.Join(fmt.Errorf("nobody said go: %w", err), <-served)
		}
	}
	go server.Warm()
	parts.services.StartAll(c.services, c.workDir)
	// What only the start needed is given back after the first answer, or at the first rest: those need most of it once more.
	code := initd.Run(initd.Options{
		Registry: parts.registry, Command: c.command, Directory: c.workDir, Terminal: c.terminal, Stdin: c.stdin,
		Journal: parts.journal, ExitFile: c.exitFile,
		MessageFile: c.messageFile, MessageCopy: c.messageCopy,
	}, signals)
	stop()
	return code, <-served
}
