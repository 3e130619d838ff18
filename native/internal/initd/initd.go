// Package initd is what PID 1 of a sandbox does besides serving: it starts the entrypoint, forwards signals to it, writes
// its log and its exit code, and ends when it ends.
package initd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"agent-sandbox.dev/native/internal/process"
)

// entrypointLogBytes is how much of the entrypoint's output can be replayed to a client that attaches.
const entrypointLogBytes = 1 << 20

// Exit codes of an entrypoint that could not be started, as shells have them.
const (
	exitCannotExecute = 126
	exitNotFound      = 127
)

// Options say what to run and where its traces go.
type Options struct {
	Registry *process.Registry
	// Command is the entrypoint; empty means that the sandbox stays until a signal ends it.
	Command   []string
	Directory string
	// Terminal gives the entrypoint a terminal, Stdin an input that stays open.
	Terminal, Stdin bool
	// Journal takes the output.
	Journal *Journal
	// ExitFile, when set, takes the exit record.
	ExitFile string
	// MessageFile is where the entrypoint may leave a last word, MessageCopy where that is kept.
	MessageFile, MessageCopy string
}

// Signals starts catching the signals that are to be forwarded; the real-time ones follow when there is a process to forward them to.
func Signals() chan os.Signal {
	// Signals that come faster than they can be forwarded merge, as the kernel's own do; 64 is room for one of each.
	caught := make(chan os.Signal, 64)
	signal.Notify(caught,
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT)
	return caught
}

// catchRealTime adds the real-time signals. Every signal costs two switches between threads, which gVisor makes slow: all of them together as
// much as the whole rest of a daemon's start.
func catchRealTime(caught chan os.Signal) {
	for number := 34; number <= 64; number++ {
		signal.Notify(caught, syscall.Signal(number))
	}
}

// Run starts the entrypoint and returns its exit code when it has ended.
func Run(options Options, signals chan os.Signal) int {
	if len(options.Command) == 0 {
		return stay(signals)
	}
	offerMessageFile(options.MessageFile)
	before := oomKills()
	spec := process.Spec{
		Command: options.Command, Dir: options.Directory, Stdin: options.Stdin, OutputBytes: entrypointLogBytes, Tee: options.Journal.Entrypoint, Entrypoint: true,
	}
	if options.Terminal {
		spec.Terminal = &process.Size{Cols: 80, Rows: 24}
	}
	began := time.Now()
	p, err := options.Registry.Start(spec)
	if err != nil {
		return failed(options, began, err)
	}
	go catchRealTime(signals)
	exit := forward(p, signals)
	options.Journal.Close()
	keepMessage(options.MessageFile, options.MessageCopy)
	record(options.ExitFile, exitRecord(p, exit, before))
	return exit.Code
}

// stay keeps a sandbox without an entrypoint until a signal ends it.
func stay(signals <-chan os.Signal) int {
	for caught := range signals {
		switch caught {
		case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP:
			return 0
		}
	}
	return 0
}

// forward hands signals to the entrypoint, and only to it, until it has ended.
func forward(p *process.Process, signals <-chan os.Signal) process.Exit {
	for {
		select {
		case caught := <-signals:
			if number, ok := caught.(syscall.Signal); ok {
				p.Signal(number, process.ScopeProcess)
			}
		case <-p.Done():
			exit, _ := p.Wait(context.Background())
			return exit
		}
	}
}

// mirror writes output to our own streams.
func mirror(stream process.Stream, output []byte) {
	if stream == process.Stderr {
		os.Stderr.Write(output)
	} else {
		os.Stdout.Write(output)
	}
}

// failed leaves the same traces of an entrypoint that never ran.
func failed(options Options, began time.Time, err error) int {
	code := exitCannotExecute
	var failure *process.StartError
	if errors.As(err, &failure) && failure.Kind == process.StartNotFound {
		code = exitNotFound
	}
	options.Journal.Entrypoint(process.Stderr, []byte("sandboxd: cannot start the entrypoint: "+err.Error()+"\n"))
	options.Journal.Close()
	record(options.ExitFile, ExitRecord{ExitCode: code, StartedAt: began.UTC(), FinishedAt: time.Now().UTC(), Error: err.Error()})
	return code
}

func record(name string, exit ExitRecord) {
	if name == "" {
		return
	}
	if err := exit.Write(name); err != nil {
		slog.Error("exit code cannot be written", "file", name, "error", err)
	}
}
