package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

// DefaultDataDir is where the one-machine engine keeps its data unless another is named.
const DefaultDataDir = "/var/lib/agent-sandbox"

// runDir holds one directory per engine that runs on this machine.
var runDir = "/run/agent-sandbox"

// Engine is a place where sandboxes run.
type Engine struct {
	credentials *credentials
	routerURL   string
	isLocal     bool
	http        *http.Client
}

// Namespace is the one that is used where none is named.
func (e *Engine) Namespace() string { return e.credentials.namespace }

// RouterURL is where the router is; empty where the engine has none.
func (e *Engine) RouterURL() string { return e.routerURL }

// baseURL begins the URLs of requests to sandboxes; without a router only their path counts.
func (e *Engine) baseURL() string { return firstOf(e.routerURL, "http://localhost") }

// linkBase is where links begin. The engine of this machine speaks cleartext too, and no other program knows its authority.
func (e *Engine) linkBase() string {
	parsed, err := url.Parse(e.routerURL)
	if err != nil || !e.isLocal {
		return e.routerURL
	}
	if host := parsed.Hostname(); host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return e.routerURL
	}
	return strings.Replace(e.routerURL, "https://", "http://", 1)
}

// WithRouterURL is the same engine with another way to its router.
func (e *Engine) WithRouterURL(routerURL string) *Engine {
	return newEngine(e.credentials, routerURL, e.isLocal)
}

// Close ends the connections that are not in use.
func (e *Engine) Close() { e.http.CloseIdleConnections() }

// EngineOptions says which engine is meant. The zero value leaves it to the environment.
type EngineOptions struct {
	// Kubeconfig is a file. Environment: AGENT_SANDBOX_KUBECONFIG.
	Kubeconfig string
	// Context is one of its contexts. Environment: AGENT_SANDBOX_CONTEXT.
	Context string
	// DataDir is that of a one-machine engine. Environment: AGENT_SANDBOX_DATA_DIR.
	DataDir string
	// RouterURL is the router's address. Environment: AGENT_SANDBOX_ROUTER_URL.
	RouterURL string
}

// FindEngine finds the engine: what the config names; AGENT_SANDBOX_KUBECONFIG and AGENT_SANDBOX_CONTEXT; the Pod this
// runs in; the engine that runs on this machine. The current context of a kubeconfig is used only where that file is named.
func FindEngine(config EngineOptions) (*Engine, error) {
	routerURL := firstOf(config.RouterURL, os.Getenv("AGENT_SANDBOX_ROUTER_URL"))
	if config.Kubeconfig != "" || config.Context != "" {
		return kubeconfigEngine(config.Kubeconfig, config.Context, routerURL)
	}
	if config.DataDir != "" {
		return localEngine(config.DataDir, routerURL)
	}
	file, name := os.Getenv("AGENT_SANDBOX_KUBECONFIG"), os.Getenv("AGENT_SANDBOX_CONTEXT")
	if file != "" || name != "" {
		return kubeconfigEngine(file, name, routerURL)
	}
	if inside := inClusterCredentials(); inside != nil {
		return newEngine(inside, routerURL, false), nil
	}
	return localEngine(firstOf(os.Getenv("AGENT_SANDBOX_DATA_DIR"), DefaultDataDir), routerURL)
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

func newEngine(credentials *credentials, routerURL string, isLocal bool) *Engine {
	transport := &http.Transport{
		// No proxy of the environment: traffic to the engine must not take a detour.
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     credentials.tlsConfig(),
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
	return &Engine{credentials: credentials, routerURL: strings.TrimRight(routerURL, "/"), isLocal: isLocal, http: &http.Client{Transport: transport}}
}

func kubeconfigEngine(file, name, routerURL string) (*Engine, error) {
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, wrapError(errorcode.EngineNotFound, err, "no kubeconfig")
		}
		file = firstOf(filepath.SplitList(os.Getenv("KUBECONFIG"))...)
		file = firstOf(file, filepath.Join(home, ".kube", "config"))
	}
	found, err := loadKubeconfig(file, name)
	if err != nil {
		return nil, err
	}
	return newEngine(found, routerURL, false), nil
}

// recordFile is where the engine of a data directory says how to reach it.
func recordFile(dataDir string) (string, error) {
	absolute, err := filepath.Abs(dataDir)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(absolute))
	return filepath.Join(runDir, hex.EncodeToString(sum[:])[:6], "engine.json"), nil
}

type engineRecord struct {
	RouterURL  string `json:"routerUrl"`
	Kubeconfig string `json:"kubeconfig"`
	Supervisor *struct {
		Pid        int    `json:"pid"`
		StartTicks string `json:"startTicks"`
	} `json:"supervisor"`
}

func localEngine(dataDir, routerURL string) (*Engine, error) {
	file, err := recordFile(dataDir)
	if err != nil {
		return nil, wrapError(errorcode.EngineNotFound, err, "data directory %s", dataDir)
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noEngine(dataDir)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, wrapError(errorcode.PermissionDenied, err, "cannot read %s; the engine of this machine is root's: run as root, or name a kubeconfig that root gave you with AGENT_SANDBOX_KUBECONFIG", file)
	}
	var record engineRecord
	if err == nil {
		err = json.Unmarshal(content, &record)
	}
	if err != nil {
		return nil, wrapError(errorcode.EngineNotFound, err, "cannot read the engine's record")
	}
	if !record.isAlive() {
		return nil, noEngine(dataDir)
	}
	found, err := loadKubeconfig(record.Kubeconfig, "")
	if err != nil {
		return nil, err
	}
	// The local router speaks TLS and cleartext on one port; credentials only ever travel by TLS.
	own := strings.Replace(record.RouterURL, "http://", "https://", 1)
	return newEngine(found, firstOf(routerURL, own), true), nil
}

// isAlive compares start times too: the kernel gives a pid again to another process.
func (r *engineRecord) isAlive() bool {
	if r.Supervisor == nil {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(r.Supervisor.Pid), "stat"))
	if err != nil {
		return false
	}
	// The command name may hold spaces and parentheses: fields are counted from the last one. The 22nd is the start.
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	return len(fields) > 19 && fields[0] != "Z" && fields[19] == r.Supervisor.StartTicks
}

func noEngine(dataDir string) *Error {
	option := ""
	if dataDir != DefaultDataDir {
		option = " --data-dir " + dataDir
	}
	return newError(errorcode.EngineNotFound, "no engine runs on %s; start one with: agent-sandbox up --detach%s", dataDir, option)
}
