package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

// object is a Kubernetes object, with the parts that are read here as fields and the rest kept.
type object struct {
	Metadata metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec,omitempty"`
	Status   json.RawMessage `json:"status,omitempty"`
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Generation        int64             `json:"generation"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	OwnerReferences   []struct {
		Kind, Name, UID string
		Controller      bool
	} `json:"ownerReferences,omitempty"`
}

type claimRef struct{ Name, UID string }

// claimOf is the claim that owns a Sandbox, or the zero value.
func claimOf(o *object) claimRef {
	for _, owner := range o.Metadata.OwnerReferences {
		if owner.Kind == "SandboxClaim" && owner.Controller {
			return claimRef{owner.Name, owner.UID}
		}
	}
	return claimRef{}
}

// resource is one kind of object and where the API serves it.
type resource struct{ group, version, plural, kind string }

var (
	sandboxes = resource{"agents.x-k8s.io", "v1beta1", "sandboxes", "Sandbox"}
	claims    = resource{"extensions.agents.x-k8s.io", "v1beta1", "sandboxclaims", "SandboxClaim"}
	pods      = resource{"", "v1", "pods", "Pod"}
)

func (r resource) apiVersion() string {
	if r.group == "" {
		return r.version
	}
	return r.group + "/" + r.version
}

func (r resource) path(namespace, name string) string {
	path := "/apis/" + r.group + "/" + r.version
	if r.group == "" {
		path = "/api/" + r.version
	}
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + r.plural
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

const (
	fieldManager = "agent-sandbox-sdk"
	// Longer than any answer to a plain request takes; watches and logs have no limit.
	kubeTimeout = 60 * time.Second
	// A watch that broke is opened again after this; doubled each time in a row, up to two seconds.
	rewatchFirst = 100 * time.Millisecond
	rewatchMax   = 2 * time.Second
	// Larger than any object the API holds.
	watchLineMax = 16 << 20
)

// kubeClient speaks to the API server.
type kubeClient struct{ engine *Engine }

func (k *kubeClient) open(ctx context.Context, method, path string, query url.Values, body any, contentType string) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		content, err := json.Marshal(body)
		if err != nil {
			return nil, wrapError(errorcode.InvalidArgument, err, "the request cannot be encoded")
		}
		reader = bytes.NewReader(content)
	}
	target := k.engine.credentials.server + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return nil, wrapError(errorcode.InvalidArgument, err, "the API server's address")
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	k.engine.authorize(request)
	response, err := k.engine.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, wrapError(errorcode.Unavailable, err, "cannot reach the API server at %s", k.engine.credentials.server)
	}
	if response.StatusCode >= 300 {
		defer response.Body.Close()
		return nil, statusError(method+" "+path, response)
	}
	return response, nil
}

func (e *Engine) authorize(request *http.Request) {
	if token := e.credentials.bearer(); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
}

// status is the Kubernetes kind of that name.
type status struct {
	Kind, Reason, Message string
	Code                  int
}

func statusError(what string, response *http.Response) error {
	content, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	var parsed status
	if json.Unmarshal(content, &parsed) != nil || parsed.Kind != "Status" {
		return newError(codeOfStatus(response.StatusCode), "%s: the API server answered %d: %s", what, response.StatusCode, trimTail(string(content), 500))
	}
	parsed.Code = response.StatusCode
	failure := parsed.error()
	failure.RequestID = response.Header.Get("Audit-Id")
	return failure
}

func (s *status) error() *Error {
	code, known := errorcode.OfReason[s.Reason]
	if !known {
		code = codeOfStatus(s.Code)
	}
	return newError(code, "%s", s.Message)
}

func (k *kubeClient) do(ctx context.Context, method, path string, query url.Values, body, answer any, contentType string) error {
	timed, cancel := context.WithTimeoutCause(ctx, kubeTimeout, newError(errorcode.RequestTimeout, "the API server did not answer %s %s in time", method, path))
	defer cancel()
	response, err := k.open(timed, method, path, query, body, contentType)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return wrapError(errorcode.Unavailable, err, "%s %s", method, path)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(content, answer); err != nil {
		return wrapError(errorcode.ProtocolError, err, "%s %s", method, path)
	}
	return nil
}

// Request sends one request to the Kubernetes API and decodes its answer; body and answer may be nil. A PATCH is a merge.
func (e *Engine) Request(ctx context.Context, method, path string, body, answer any) error {
	contentType := jsonType
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	return (&kubeClient{e}).do(ctx, method, path, nil, body, answer, contentType)
}

const jsonType = "application/json"

func (k *kubeClient) get(ctx context.Context, r resource, namespace, name string) (*object, error) {
	found := &object{}
	return found, k.do(ctx, http.MethodGet, r.path(namespace, name), nil, nil, found, jsonType)
}

// undoLimit is how long a call that was given up waits until the object it made is deleted.
const undoLimit = 5 * time.Second

// create makes an object; a field that the server does not know is an error. The request is not cut off with the caller's context,
// because it would be unknown then whether the object is there: a call that is given up deletes it again.
func (k *kubeClient) create(ctx context.Context, r resource, namespace string, made map[string]any) (*object, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(undoLimit, cancel) })()
	query := url.Values{"fieldValidation": {"Strict"}, "fieldManager": {fieldManager}}
	made["apiVersion"], made["kind"] = r.apiVersion(), r.kind
	created := &object{}
	err := k.do(lingering, http.MethodPost, r.path(namespace, ""), query, made, created, jsonType)
	if ctx.Err() == nil {
		return created, err
	}
	if err == nil {
		// The call returns its context's error; a failed clean-up is the connection's.
		_ = k.delete(lingering, r, namespace, created.Metadata.Name, created.Metadata.UID)
	}
	return nil, context.Cause(ctx)
}

// patch merges into the object.
func (k *kubeClient) patch(ctx context.Context, r resource, namespace, name string, patch map[string]any) (*object, error) {
	query := url.Values{"fieldValidation": {"Strict"}, "fieldManager": {fieldManager}}
	patched := &object{}
	return patched, k.do(ctx, http.MethodPatch, r.path(namespace, name), query, patch, patched, "application/merge-patch+json")
}

// delete takes what is gone already, or has been replaced by another of its name, for success.
func (k *kubeClient) delete(ctx context.Context, r resource, namespace, name, uid string) error {
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
	if uid != "" {
		options["preconditions"] = map[string]any{"uid": uid}
	}
	err := k.do(ctx, http.MethodDelete, r.path(namespace, name), nil, options, nil, jsonType)
	if code := CodeOf(err); code == errorcode.NotFound || code == errorcode.Conflict {
		return nil
	}
	return err
}

// list yields every object, page by page.
func (k *kubeClient) list(ctx context.Context, r resource, namespace, selector string) iter.Seq2[*object, error] {
	return func(yield func(*object, error) bool) {
		query := url.Values{"limit": {"200"}}
		if selector != "" {
			query.Set("labelSelector", selector)
		}
		for {
			var page struct {
				Items    []*object
				Metadata struct{ Continue string }
			}
			if err := k.do(ctx, http.MethodGet, r.path(namespace, ""), query, nil, &page, jsonType); err != nil {
				yield(nil, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Metadata.Continue == "" {
				return
			}
			query.Set("continue", page.Metadata.Continue)
		}
	}
}

// watch calls see with each state of one object, nil once it is gone, until it returns false.
func (k *kubeClient) watch(ctx context.Context, r resource, namespace, name, version string, see func(*object) bool) (more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "fieldSelector": {"metadata.name=" + name}, "resourceVersion": {version}}
	response, err := k.open(ctx, http.MethodGet, r.path(namespace, ""), query, nil, "")
	if err != nil {
		return true, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, watchLineMax)
	for lines.Scan() {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return true, wrapError(errorcode.ProtocolError, err, "watch %s", r.plural)
		}
		if more, err := seeEvent(event.Type, event.Object, see); err != nil || !more {
			return more, err
		}
	}
	return true, nil
}

func seeEvent(kind string, raw json.RawMessage, see func(*object) bool) (more bool, err error) {
	switch kind {
	case "BOOKMARK":
		return true, nil
	case "ERROR":
		var failure status
		if err := json.Unmarshal(raw, &failure); err != nil {
			return true, wrapError(errorcode.ProtocolError, err, "watch")
		}
		return true, failure.error()
	case "DELETED":
		return see(nil), nil
	}
	state := &object{}
	if err := json.Unmarshal(raw, state); err != nil {
		return true, wrapError(errorcode.ProtocolError, err, "watch")
	}
	return see(state), nil
}

// follow calls see with the present state of one object and then each later one, until it returns false.
func (k *kubeClient) follow(ctx context.Context, r resource, namespace, name string, see func(*object) bool) error {
	pause := rewatchFirst
	seeAndReset := func(state *object) bool {
		pause = rewatchFirst
		return see(state)
	}
	for {
		found, err := k.get(ctx, r, namespace, name)
		version := "0"
		switch {
		case CodeOf(err) == errorcode.NotFound:
			found, err = nil, nil
		case err == nil:
			version = found.Metadata.ResourceVersion
		}
		if err == nil {
			if !see(found) {
				return nil
			}
			var more bool
			if more, err = k.watch(ctx, r, namespace, name, version, seeAndReset); err == nil && !more {
				return nil
			}
		}
		if err := pauseAfter(ctx, err, pause); err != nil {
			return err
		}
		pause = min(2*pause, rewatchMax)
	}
}

// pauseAfter waits before a watch begins again; a refusal does not become better by asking again.
func pauseAfter(ctx context.Context, err error, pause time.Duration) error {
	var own *Error
	if errors.As(err, &own) && !own.IsRetryable() && own.Code != errorcode.SandboxExpired {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pause):
		return nil
	}
}
