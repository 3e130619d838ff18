// Package sandbox gives programs isolated, stateful Linux environments, on one machine or a cluster.
package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"agent-sandbox.dev/sdk/protocol/agentsandbox/v1/agentsandboxv1connect"
	"connectrpc.com/connect"
)

// Sandbox is the handle of one sandbox. It is safe for concurrent use.
type Sandbox struct {
	// Name, Namespace and UID are those of the Sandbox object.
	Name, Namespace, UID string
	// ClaimName is the claim that holds it; empty where there is none.
	ClaimName string
	// LastSeen is what the handle knew when it was made.
	LastSeen *Info

	claimUID  string
	engine    *Engine
	kube      *kubeClient
	plane     *plane
	processes agentsandboxv1connect.ProcessServiceClient
	fileCalls agentsandboxv1connect.FileServiceClient
}

func newSandbox(engine *Engine, found *object) *Sandbox {
	meta, claim := found.Metadata, claimOf(found)
	plane := &plane{engine: engine, namespace: meta.Namespace, name: meta.Name, uid: meta.UID, port: daemonPort, way: &way{}}
	// Traffic stays on the machine or inside a tunnel; compressing it would only add latency.
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	box := &Sandbox{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ClaimName: claim.Name, claimUID: claim.UID, LastSeen: infoOf(found), engine: engine, kube: &kubeClient{engine}, plane: plane,
		processes: agentsandboxv1connect.NewProcessServiceClient(plane.client(), engine.baseURL(), plain),
		fileCalls: agentsandboxv1connect.NewFileServiceClient(plane.client(), engine.baseURL(), plain),
	}
	plane.way.tunnel = newTunnel(box)
	return box
}

// Create makes a sandbox and waits until it is ready; one that does not become ready is deleted again.
func Create(ctx context.Context, options ...CreateOption) (*Sandbox, error) {
	s, err := settingsOf(options, CreateOption.create)
	if err != nil {
		return nil, err
	}
	s.name = firstOf(s.name, "sandbox-"+newKey()[:8])
	made, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	box := newSandbox(s.engine, made)
	if err := box.awaitReady(ctx, made, s.readyTimeout); err != nil {
		// The error that is on its way says more than that the clean-up failed too.
		_ = box.Delete(context.WithoutCancel(ctx))
		return nil, err
	}
	return box, nil
}

func (s *settings) create(ctx context.Context) (*object, error) {
	kube := &kubeClient{s.engine}
	isOwn := s.engine.isLocal
	if !isOwn {
		var version struct{ GitVersion string }
		if err := kube.do(ctx, http.MethodGet, "/version", nil, nil, &version, jsonType); err != nil {
			return nil, err
		}
		isOwn = strings.Contains(version.GitVersion, "+agent-sandbox")
	}
	if err := s.inherit(ctx); err != nil {
		return nil, err
	}
	made, err := sandboxObject(s, time.Now(), isOwn)
	if err != nil {
		return nil, err
	}
	return kube.create(ctx, sandboxes, s.namespace, made)
}

func (b *Sandbox) awaitReady(ctx context.Context, known *object, limit time.Duration) error {
	if limit <= 0 {
		return nil
	}
	_, err := b.kube.waitReady(ctx, known, limit)
	return err
}

// Open returns the sandbox of that name: made where it is missing, woken where it sleeps.
func Open(ctx context.Context, name string, options ...OpenOption) (*Sandbox, error) {
	s, err := settingsOf(options, OpenOption.open)
	if err != nil {
		return nil, err
	}
	s.name = name
	kube := &kubeClient{s.engine}
	found, err := kube.get(ctx, sandboxes, s.namespace, name)
	if CodeOf(err) == errorcode.NotFound {
		if found, err = s.create(ctx); CodeOf(err) == errorcode.AlreadyExists {
			// Another caller was faster: its sandbox is the one that is meant.
			found, err = kube.get(ctx, sandboxes, s.namespace, name)
		}
	}
	if err != nil {
		return nil, err
	}
	box := newSandbox(s.engine, found)
	if specOf(found).OperatingMode == "Suspended" {
		awake := box.guarded(map[string]any{"operatingMode": "Running"})
		if found, err = kube.patch(ctx, sandboxes, s.namespace, name, awake); err != nil {
			return nil, err
		}
	}
	if err := box.awaitReady(ctx, found, s.readyTimeout); err != nil {
		return nil, err
	}
	return box, nil
}

// Claim takes a sandbox from a warm pool; a claim that fails is deleted again.
func Claim(ctx context.Context, pool string, options ...ClaimOption) (*Sandbox, error) {
	s, err := settingsOf(options, ClaimOption.claim)
	if err != nil {
		return nil, err
	}
	s.name = firstOf(s.name, "claim-"+newKey()[:8])
	made, err := claimObject(pool, s, time.Now())
	if err != nil {
		return nil, err
	}
	kube := &kubeClient{s.engine}
	claim, err := kube.create(ctx, claims, s.namespace, made)
	if err != nil {
		return nil, err
	}
	bound, err := kube.waitFor(ctx, claims, s.namespace, s.name, s.readyTimeout, judgeClaim)
	var found *object
	if err == nil {
		found, err = kube.get(ctx, sandboxes, s.namespace, boundSandbox(bound))
	}
	if err != nil {
		_ = kube.delete(context.WithoutCancel(ctx), claims, s.namespace, s.name, claim.Metadata.UID)
		return nil, err
	}
	return newSandbox(s.engine, found), nil
}

// Get returns the sandbox of that name.
func Get(ctx context.Context, name string, options ...GetOption) (*Sandbox, error) {
	s, err := settingsOf(options, GetOption.get)
	if err != nil {
		return nil, err
	}
	return s.find(ctx, name)
}

func (s *settings) find(ctx context.Context, name string) (*Sandbox, error) {
	found, err := (&kubeClient{s.engine}).get(ctx, sandboxes, s.namespace, name)
	if err != nil {
		return nil, err
	}
	return newSandbox(s.engine, found), nil
}

// List yields every sandbox, page by page. Unclaimed members of pools are among them.
func List(ctx context.Context, options ...ListOption) iter.Seq2[*Sandbox, error] {
	return func(yield func(*Sandbox, error) bool) {
		s, err := settingsOf(options, ListOption.list)
		if err != nil {
			yield(nil, err)
			return
		}
		if s.allNamespaces {
			s.namespace = ""
		}
		for item, err := range (&kubeClient{s.engine}).list(ctx, sandboxes, s.namespace, s.selector) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(newSandbox(s.engine, item), nil) {
				return
			}
		}
	}
}

type handle struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Claim     string `json:"claim,omitempty"`
}

// MarshalJSON writes the handle, without credentials; the same in every language.
func (b *Sandbox) MarshalJSON() ([]byte, error) {
	return json.Marshal(handle{b.Namespace, b.Name, b.UID, b.ClaimName})
}

// From returns the handle that MarshalJSON wrote, here or elsewhere.
func From(ctx context.Context, content []byte, options ...FromOption) (*Sandbox, error) {
	var written handle
	if err := json.Unmarshal(content, &written); err != nil || written.Name == "" {
		return nil, newError(errorcode.InvalidArgument, "not a handle of a sandbox")
	}
	s, err := settingsOf(options, FromOption.from)
	if err != nil {
		return nil, err
	}
	s.namespace = written.Namespace
	box, err := s.find(ctx, written.Name)
	if err != nil {
		return nil, err
	}
	if written.UID != "" && box.UID != written.UID {
		return nil, newError(errorcode.NotFound, "sandbox %s/%s was replaced by another of its name", written.Namespace, written.Name)
	}
	return box, nil
}

// RunResult is what a finished command left.
type RunResult struct {
	ExitStatus
	Stdout, Stderr []byte
	// Combined has both streams in the order in which the sandbox read them.
	Combined     []byte
	DroppedBytes uint64
}

// Run runs a script in the sandbox's shell. A non-zero exit code is a result; running out of time is an error.
func (b *Sandbox) Run(ctx context.Context, script string) (*RunResult, error) {
	return b.Shell(ctx, script).Result()
}

// Result runs the command and collects everything; Stdout and Stderr, where they are set, get the output too. A non-zero exit code is
// a result; running out of time is an error.
func (c *Cmd) Result() (*RunResult, error) {
	collected := &output{}
	c.collected = collected
	err := c.Run()
	if c.ExitStatus == nil {
		return nil, err
	}
	result := &RunResult{*c.ExitStatus, collected.stdout.Bytes(), collected.stderr.Bytes(), collected.combined.Bytes(), c.DroppedBytes}
	if CodeOf(err) == errorcode.CommandFailed {
		return result, nil
	}
	return result, err
}

// output is what a command printed: each stream, and both in the order in which the sandbox read them.
type output struct{ stdout, stderr, combined bytes.Buffer }

// ProcessInfo describes a process.
type ProcessInfo struct {
	ID, Cwd, User, Tag string
	Pid                int
	Command            []string
	StartedAt          time.Time
	HasTerminal        bool
	// Exit is nil while it runs.
	Exit *ExitStatus
}

// ProcessesOptions choose what Processes returns.
type ProcessesOptions struct {
	// RunningOnly leaves out those that have ended.
	RunningOnly bool
}

// Processes returns those that run or are still remembered, oldest first.
func (b *Sandbox) Processes(ctx context.Context, options ProcessesOptions) ([]ProcessInfo, error) {
	answer, err := b.processes.List(ctx, &sandboxv1.ListRequest{RunningOnly: options.RunningOnly})
	if err != nil {
		return nil, callError(ctx, err)
	}
	infos := make([]ProcessInfo, 0, len(answer.GetProcesses()))
	for _, p := range answer.GetProcesses() {
		info := ProcessInfo{
			ID: p.GetId(), Cwd: p.GetCwd(), User: p.GetUser(), Tag: p.GetTag(), Pid: int(p.GetPid()), Command: p.GetCommand(),
			StartedAt: p.GetStartedAt().AsTime(), HasTerminal: p.GetTerminal(),
		}
		if p.GetExit() != nil {
			info.Exit = exitStatusOf(p.GetExit())
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// URL makes a link to a port that a browser can open without credentials, until ttl has passed.
func (b *Sandbox) URL(ctx context.Context, port int, ttl time.Duration) (string, error) {
	if b.engine.routerURL == "" {
		return "", newError(errorcode.Unsupported, "this engine has no router to make links; give RouterURL or AGENT_SANDBOX_ROUTER_URL")
	}
	asked := map[string]any{"namespace": b.Namespace, "name": b.Name, "port": port, "ttlSeconds": max(1, int(ttl.Seconds()))}
	content, err := json.Marshal(asked)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.engine.routerURL+"/_agent-sandbox/links", bytes.NewReader(content))
	if err != nil {
		return "", wrapError(errorcode.InvalidArgument, err, "the router's address")
	}
	request.Header.Set("Content-Type", jsonType)
	b.engine.authorize(request)
	response, err := b.engine.http.Do(request)
	if err != nil {
		return "", callError(ctx, err)
	}
	defer response.Body.Close()
	if refusal := refusalOf(response); refusal != nil {
		return "", refusal
	}
	var made struct{ Path string }
	if err := json.NewDecoder(response.Body).Decode(&made); err != nil || made.Path == "" {
		return "", newError(errorcode.ProtocolError, "the router made no link")
	}
	return b.engine.linkBase() + made.Path, nil
}

// Port returns a client for a port inside the sandbox and the URL that its requests begin with; a sleeping sandbox is
// woken by them.
func (b *Sandbox) Port(port int) (*http.Client, *url.URL, error) {
	base, err := url.Parse(b.engine.baseURL() + "/")
	if err != nil {
		return nil, nil, wrapError(errorcode.InvalidArgument, err, "the router's address")
	}
	return b.plane.onPort(port).client(), base, nil
}
