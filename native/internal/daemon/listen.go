package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"agent-sandbox.dev/native/internal/process"
)

// headerTimeout bounds the wait for a request's headers; bodies may take as long as they need.
const headerTimeout = 10 * time.Second

// terminationGrace is how long processes get to end by themselves at shutdown.
const terminationGrace = 2 * time.Second

// streamGrace is how long answers that are nearly done get before endless streams are ended.
const streamGrace = 200 * time.Millisecond

// closing refuses new work while what runs is being ended.
type closing struct{ begun atomic.Bool }

func (c *closing) refuses(path string) bool { return c.begun.Load() && !isQuiet(path) }

// Serve answers on every listener, HTTP/1.1 and cleartext HTTP/2 alike, until the context ends; then it shuts down within
// the given time. It returns the first error that was not asked for.
func (s *Server) Serve(ctx context.Context, listeners []net.Listener, idleTimeout, shutdownTimeout time.Duration) error {
	s.noteOwnPorts(listeners)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	base, endStreams := context.WithCancel(context.Background())
	defer endStreams()
	server := &http.Server{
		BaseContext: func(net.Listener) context.Context { return base },
		Handler:     s, Protocols: protocols, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
	failures := make(chan error, len(listeners))
	var serving sync.WaitGroup
	for _, listener := range listeners {
		serving.Go(func() { failures <- server.Serve(listener) })
	}
	var failure error
	select {
	case failure = <-failures:
	case <-ctx.Done():
	}
	s.shutdown(server, shutdownTimeout, endStreams)
	serving.Wait()
	if errors.Is(failure, http.ErrServerClosed) {
		return nil
	}
	return failure
}

// shutdown refuses new work, ends processes, lets answers finish, and leaves as soon as nothing is left. Streams that would
// never end by themselves, such as watches, are ended after a moment.
func (s *Server) shutdown(server *http.Server, budget time.Duration, endStreams func()) {
	s.closing.begun.Store(true)
	deadline, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	s.options.Registry.Shutdown(func(p *process.Process) { p.Signal(syscall.SIGTERM, process.ScopeTree) }, time.After(min(terminationGrace, budget)))
	defer time.AfterFunc(streamGrace, endStreams).Stop()
	// Shutdown alone would wait a second for every idle HTTP/2 connection.
	go server.Shutdown(deadline)
	for s.activity.Open() > 0 && deadline.Err() == nil {
		time.Sleep(shutdownLookEvery)
	}
	time.Sleep(time.Until(s.activity.LastAt().Add(flushGrace)))
	server.Close()
}

// shutdownLookEvery is how often a daemon that is ending looks whether the last answer is out; flushGrace is what the last
// bytes of one get to leave, counted from its end.
const (
	shutdownLookEvery = 2 * time.Millisecond
	flushGrace        = 20 * time.Millisecond
)
