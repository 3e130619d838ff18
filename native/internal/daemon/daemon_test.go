package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/beneath"
	"agent-sandbox.dev/native/internal/gen/process/v1/processv1connect"
	"agent-sandbox.dev/native/internal/initd"
	"agent-sandbox.dev/native/internal/legacy"
	"agent-sandbox.dev/native/internal/process"
	"agent-sandbox.dev/native/internal/supervise"
	"agent-sandbox.dev/sdk/protocol/agentsandbox/v1/agentsandboxv1connect"
	"connectrpc.com/connect"
)

var testReaper = sync.OnceValue(process.NewReaper)

// world is a running daemon with clients of every kind.
type world struct {
	t      testing.TB
	root   string
	url    string
	server *Server
	stop   context.CancelFunc
	done   chan error
	plain  *http.Client
	grpc   *http.Client

	published processv1connect.ProcessServiceClient
	processes agentsandboxv1connect.ProcessServiceClient
	files     agentsandboxv1connect.FileServiceClient
}

func newWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(top, "workspace")
	os.Mkdir(root, 0o755)
	os.WriteFile(top+"/secret", []byte("secret"), 0o644)
	confined, err := beneath.New(root, "")
	if err != nil {
		t.Fatal(err)
	}
	system, _ := beneath.New("/", root)
	environment := append(process.Environment(), "SANDBOX_ID=x1", "SANDBOX_API_TOKEN=hidden", "OTHER=1")
	registry, _ := process.NewRegistry(testReaper(), environment, 100)
	journal := initd.NewJournal(top+"/log", 1<<20, 2)
	services := supervise.New(registry, journal)
	t.Cleanup(func() { services.End("web") })
	options := Options{
		Registry: registry, Journal: journal, Services: services, Root: confined, FileSystem: system, MetadataPrefix: "SANDBOX_", Environment: environment, Rest: func() {},
		Legacy: &legacy.Runtime{Registry: registry, Directory: func() string { return root }, Timeout: func() time.Duration { return 500 * time.Millisecond }},
	}
	for _, one := range change {
		one(&options)
	}
	w := &world{t: t, root: root, server: NewServer(options), done: make(chan error, 1)}
	w.listen()
	return w
}

func (w *world) listen() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.url = stop, "http://"+listener.Addr().String()
	go func() { w.done <- w.server.Serve(ctx, []net.Listener{listener}, time.Minute, 3*time.Second) }()
	w.t.Cleanup(func() { stop(); <-w.done; w.done <- nil })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	w.plain, w.grpc = &http.Client{CheckRedirect: refuseRedirect, Transport: &http.Transport{}}, &http.Client{Transport: &http.Transport{Protocols: protocols}}
	w.published = processv1connect.NewProcessServiceClient(w.grpc, w.url, connect.WithGRPC())
	w.processes = agentsandboxv1connect.NewProcessServiceClient(w.grpc, w.url)
	w.files = agentsandboxv1connect.NewFileServiceClient(w.plain, w.url, connect.WithProtoJSON())
}

func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// request sends a raw request target, untouched by any URL parser.
func (w *world) request(method, target, body string, headers ...string) answer {
	w.t.Helper()
	request, err := http.NewRequest(method, w.url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	path, query, _ := strings.Cut(target, "?")
	request.URL.Opaque = "//" + request.URL.Host + path
	request.URL.RawQuery = query
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.plain.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// expect checks the status and a part of the body.
func (w *world) expect(got answer, status int, part string) {
	w.t.Helper()
	if got.status != status || !strings.Contains(got.body, part) {
		w.t.Errorf("answered %d %q, want %d with %q", got.status, got.body, status, part)
	}
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(w.root, name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.root, name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	text, err := os.ReadFile(filepath.Join(w.root, name))
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
	return string(text)
}

func expectCode(t testing.TB, err error, code connect.Code, part string) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != code || !strings.Contains(err.Error(), part) {
		t.Errorf("error %v, want %v with %q", err, code, part)
	}
}
