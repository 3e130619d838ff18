// Package daemon serves a sandbox's processes and files: the published gRPC and REST services, our own services, and the
// legacy HTTP runtime, all on every listener. A request is told apart by its path alone.
package daemon

import (
	"net/http"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/beneath"
	"agent-sandbox.dev/native/internal/files"
	"agent-sandbox.dev/native/internal/gen/process/v1/processv1connect"
	"agent-sandbox.dev/native/internal/initd"
	"agent-sandbox.dev/native/internal/legacy"
	"agent-sandbox.dev/native/internal/process"
	"agent-sandbox.dev/native/internal/supervise"
	"agent-sandbox.dev/sdk/protocol/agentsandbox/v1/agentsandboxv1connect"
	"connectrpc.com/connect"
)

// Options are what a Server is made of.
type Options struct {
	Registry *process.Registry
	// Journal takes the output of processes whose starter asks for it; Services keeps those running that are declared.
	Journal  *initd.Journal
	Services *supervise.Supervisor
	// Root confines the published services; relative and absolute paths alike are below it.
	Root *beneath.Root
	// FileSystem confines our own services; absolute paths are the sandbox's own.
	FileSystem *beneath.Root
	// Legacy answers whatever is neither an RPC nor below /v1.
	Legacy *legacy.Runtime
	// MetadataPrefix starts the names of the variables that /v1/metadata shows.
	MetadataPrefix string
	Environment    []string
	// Rest is called when nothing has happened for a while.
	Rest func()
	// Answered, when set, is called once, when the first request that counts as activity has been answered.
	Answered func()
	// Token, when set, must come with every request but those for health.
	Token *Token
}

// Server answers every protocol.
type Server struct {
	options   Options
	published *files.Space
	system    *files.Space
	activity  *Activity
	startedAt time.Time
	services  map[string]func() http.Handler
	metadata  func() map[string]string
	closing   closing
	// ownPorts are where the daemon listens, as the kernel's tables write ports.
	ownPorts []string
}

// messageBytesMax bounds one inbound message, as the reference daemon's library does.
const messageBytesMax = 4 << 20

// NewServer makes a server.
func NewServer(options Options) *Server {
	s := &Server{
		options: options, published: files.NewSpace(options.Root), system: files.NewSpace(options.FileSystem),
		activity: NewActivity(options.Rest, options.Answered), startedAt: time.Now(),
	}
	s.metadata = metadataOf(options.Environment, options.MetadataPrefix)
	s.services = s.newServices(
		// Traffic stays on the machine or inside a tunnel; compressing it would only add latency.
		connect.WithCompressMinBytes(1<<30),
		connect.WithReadMaxBytes(messageBytesMax),
	)
	return s
}

// Warm makes what the first call would have to wait for, and what the answer that a sandbox waits for does not need. That call
// mostly runs a program.
func (s *Server) Warm() {
	s.services["/"+agentsandboxv1connect.ProcessServiceName+"/"]()
	s.services["/"+processv1connect.ProcessServiceName+"/"]()
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := rawPath(r)
	if !isQuiet(path) {
		defer s.activity.begin(kindOf(path))()
	}
	if !isPublic(path) && !s.options.Token.Allows(r.Header.Get("Authorization")) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeError(w, http.StatusUnauthorized, "UNAUTHENTICATED", "a valid bearer token is required")
		return
	}
	if s.closing.refuses(path) {
		writeError(w, http.StatusServiceUnavailable, "UNAVAILABLE", "sandboxd is shutting down")
		return
	}
	s.route(w, r, path)
}

func (s *Server) route(w http.ResponseWriter, r *http.Request, path string) {
	if handler := s.service(path); handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	rest, versioned := strings.CutPrefix(path, "/v1/")
	if !versioned {
		s.options.Legacy.Serve(w, r, path)
		return
	}
	name, file, _ := strings.Cut(rest, "/")
	switch name {
	case "files":
		s.serveFile(w, r, s.published, file)
	case "fs":
		s.serveFile(w, r, s.system, file)
	case "dial":
		s.serveDial(w, r, file)
	default:
		s.serveStatus(w, r, rest)
	}
}

// service finds the handler of an RPC path, "/package.Service/Method".
func (s *Server) service(path string) http.Handler {
	name, ok := strings.CutPrefix(path, "/")
	end := strings.IndexByte(name, '/')
	if !ok || end < 0 {
		return nil
	}
	if open, known := s.services[path[:end+2]]; known {
		return open()
	}
	return nil
}

// rawPath is the request's path as it was sent, still percent-encoded. Go's own cleaning would turn encoded dots and
// slashes into another path.
func rawPath(r *http.Request) string {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") {
		// The absolute form, as sent to proxies.
		if _, rest, ok := strings.Cut(target, "://"); ok {
			_, rest, _ = strings.Cut(rest, "/")
			target = "/" + rest
		}
	}
	target, _, _ = strings.Cut(target, "?")
	return target
}

// isQuiet says whether a request is only a look, which must not keep a sandbox awake.
func isQuiet(path string) bool {
	switch path {
	case "/v1/health", "/v1/activity", "/v1/metrics", "/v1/metadata", "/v1/ports":
		return true
	}
	return strings.HasPrefix(path, "/grpc.health.v1.Health/")
}

// isPublic says whether a request needs no token: probes have none.
func isPublic(path string) bool {
	return path == "/v1/health" || strings.HasPrefix(path, "/grpc.health.v1.Health/")
}
