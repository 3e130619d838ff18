// Package hostapi is the socket of sandbox-host: a closed table of verbs, each decoded strictly, locked by what it touches and bounded in time.
package hostapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// A files volume of 16 MiB in base64 is the largest request.
const requestBytesMax = 24 << 20

type nothing struct{}

// verb is one entry of the table.
type verb struct {
	deadline time.Duration
	// run decodes the request, takes the locks and carries it out.
	run func(ctx context.Context, body []byte) (any, error)
}

// Server answers on the socket.
type Server struct {
	verbs   map[string]verb
	locks   *keyLocks
	nodeUID uint32
	log     *slog.Logger
	host    *Host
}

// NewServer makes the table of verbs.
func NewServer(host *Host, log *slog.Logger) *Server {
	s := &Server{verbs: map[string]verb{}, locks: newKeyLocks(), nodeUID: host.NodeUID, log: log, host: host}
	s.register()
	return s
}

// define adds a verb. keys names what it touches: verbs with a key in common are carried out one after the other.
func define[Request, Answer any](s *Server, name string, deadline time.Duration, keys func(Request) []string, run func(context.Context, Request) (Answer, error)) {
	s.verbs[name] = verb{deadline: deadline, run: func(ctx context.Context, body []byte) (any, error) {
		var request Request
		decoder := json.NewDecoder(strings.NewReader(string(body)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&request); err != nil {
			return nil, hosterr.New(hosterr.InvalidArgument, "request: %v", err)
		}
		if decoder.More() {
			return nil, hosterr.New(hosterr.InvalidArgument, "request: more than one JSON value")
		}
		release, err := s.locks.lock(ctx, keys(request))
		if err != nil {
			return nil, err
		}
		defer release()
		return run(ctx, request)
	}}
}

type (
	peerKey struct{}
	// stopKey has the context of the server itself.
	stopKey struct{}
)

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       10 * time.Minute,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), stopKey{}, ctx)
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, peerUID(conn))
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		// Verbs that run are finished, all but an export; what cannot finish in this time is completed by the caller's next try.
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// untilStop is the context of a request that ends with the server too, and not after what other verbs have to finish.
func untilStop(request context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(request)
	server, isServed := request.Value(stopKey{}).(context.Context)
	if !isServed {
		return ctx, cancel
	}
	unbind := context.AfterFunc(server, cancel)
	return ctx, func() { unbind(); cancel() }
}

// peerUID asks the kernel which user is at the other end; -1 where it cannot tell.
func peerUID(conn net.Conn) int64 {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return -1
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1
	}
	uid := int64(-1)
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int64(cred.Uid)
		}
	})
	return uid
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	uid, _ := r.Context().Value(peerKey{}).(int64)
	if uid != 0 && uid != int64(s.nodeUID) {
		writeError(w, hosterr.New(hosterr.PermissionDenied, "user %d may not speak to this instance", uid))
		return
	}
	name, found := strings.CutPrefix(r.URL.Path, "/v1/")
	if !found || r.Method != http.MethodPost {
		writeError(w, hosterr.New(hosterr.InvalidArgument, "%s %s is not POST /v1/<verb>", r.Method, r.URL.Path))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, requestBytesMax))
	if err != nil {
		writeError(w, hosterr.New(hosterr.InvalidArgument, "request: %v", err))
		return
	}
	if name == "exec" {
		s.serveExec(w, r, body)
		return
	}
	if name == "exportImage" {
		s.serveExport(w, r, uid, body)
		return
	}
	v, found := s.verbs[name]
	if !found {
		writeError(w, hosterr.New(hosterr.InvalidArgument, "%q is not a verb", name))
		return
	}
	s.carryOut(w, r, name, v, body)
}

func (s *Server) carryOut(w http.ResponseWriter, r *http.Request, name string, v verb, body []byte) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), v.deadline)
	defer cancel()
	answer, err := v.run(ctx, body)
	fields := []any{"verb", name, "durationMs", float64(time.Since(started).Microseconds()) / 1000}
	if err != nil {
		s.log.Info("verb failed", append(fields, "code", string(hosterr.Of(err)), "error", err.Error())...)
		writeError(w, err)
		return
	}
	s.log.Debug("verb", fields...)
	if _, empty := answer.(nothing); empty {
		answer = map[string]any{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

type errorBody struct {
	Code    hosterr.Code `json:"code"`
	Message string       `json:"message"`
}

func writeError(w http.ResponseWriter, err error) {
	code := hosterr.Of(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(statusOf(code))
	_ = json.NewEncoder(w).Encode(errorBody{Code: code, Message: err.Error()})
}

func statusOf(code hosterr.Code) int {
	switch code {
	case hosterr.InvalidArgument, hosterr.PathEscape, hosterr.EntryRefused, hosterr.DigestMismatch, hosterr.StartFailed:
		return http.StatusBadRequest
	case hosterr.NotFound:
		return http.StatusNotFound
	case hosterr.AlreadyExists, hosterr.Busy, hosterr.RestoreRefused:
		return http.StatusConflict
	case hosterr.PermissionDenied, hosterr.HostPathDenied:
		return http.StatusForbidden
	}
	return http.StatusInternalServerError
}

// Listen opens the socket for root and the node's group alone. It appears under its name only once it answers.
func Listen(path string, gid int) (*net.UnixListener, error) {
	dir, err := confine.OpenTree(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	socket := dir.At(filepath.Base(path))
	work := socket.WithSuffix(".tmp")
	if err := work.Remove(); err != nil {
		return nil, err
	}
	var listener *net.UnixListener
	if err := work.Through(func(name string) (err error) {
		if listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}); err != nil {
			return err
		}
		listener.SetUnlinkOnClose(false)
		return errors.Join(os.Lchown(name, 0, gid), os.Chmod(name, 0o660))
	}); err != nil {
		return nil, err
	}
	if err := work.Rename(socket); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// Verbs is the table's names, for the contract's own check.
func (s *Server) Verbs() []string {
	names := []string{"exec", "exportImage"}
	for name := range s.verbs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
