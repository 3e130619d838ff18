package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

// daemonPort is where sandboxd serves.
const daemonPort = 49900

const (
	// A router that has not seen a new sandbox yet says 404; one that holds too many callers says 503. Neither has
	// passed the request on, so that it can be sent again.
	unknownRetriesMax = 5
	retryPause        = 100 * time.Millisecond
	retryLimit        = time.Minute
	refusalBytesMax   = 64 << 10
)

// plane is the way to one sandbox: an http.RoundTripper that names it to the router or, where no router can be reached, connects to it
// through the API server.
type plane struct {
	engine               *Engine
	namespace, name, uid string
	port                 int
	way                  *way
}

// way is what the planes of one sandbox share.
type way struct {
	tunnel *tunnel
	// routed says that the router has answered, and forwarded that it could not be reached before it ever did.
	routed, forwarded atomic.Bool
}

func (p *plane) onPort(port int) *plane {
	other := *p
	other.port = port
	return &other
}

// client sends requests to the sandbox; URLs begin with the router's.
func (p *plane) client() *http.Client {
	// A redirect of the user's program is the user's to follow.
	return &http.Client{Transport: p, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip sends one request; a refusal of the router becomes an *Error, an answer of the sandbox stays as it is.
func (p *plane) RoundTrip(request *http.Request) (*http.Response, error) {
	if p.engine.routerURL == "" || p.way.forwarded.Load() {
		return p.way.tunnel.send(request, p.port)
	}
	if isOneShot(request) && !p.way.routed.Load() {
		// What can be sent once only must not be spent on finding out whether there is a router.
		if err := p.probe(request.Context()); err != nil {
			return nil, err
		}
		return p.RoundTrip(request)
	}
	deadline, unknown := time.Now().Add(retryLimit), 0
	for {
		response, err := p.send(request)
		if err != nil {
			if !p.way.routed.Load() && isUnreachable(err) && rewind(request) == nil {
				p.way.forwarded.Store(true)
				return p.way.tunnel.send(request, p.port)
			}
			return nil, callError(request.Context(), err)
		}
		p.way.routed.Store(true)
		refusal := refusalOf(response)
		if refusal == nil {
			return response, nil
		}
		if refusal.Code == errorcode.NotFound {
			unknown++
		}
		mends := refusal.Code == errorcode.SandboxNotReady || refusal.Code == errorcode.NotFound && unknown <= unknownRetriesMax
		if !mends || time.Now().After(deadline) || rewind(request) != nil {
			return nil, refusal
		}
		select {
		case <-request.Context().Done():
			return nil, context.Cause(request.Context())
		case <-time.After(retryPause):
		}
	}
}

func isOneShot(request *http.Request) bool {
	return request.Body != nil && request.Body != http.NoBody && request.GetBody == nil
}

// probe chooses the way by a harmless request.
func (p *plane) probe(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.engine.baseURL()+"/v1/health", nil)
	if err != nil {
		return wrapError(errorcode.InvalidArgument, err, "the router's address")
	}
	response, err := p.onPort(daemonPort).RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// isUnreachable says whether an error proves that no connection was made, and so that nothing was sent.
func isUnreachable(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

var errNotRepeatable = errors.New("the request's body cannot be sent again")

func rewind(request *http.Request) error {
	if request.Body == nil || request.Body == http.NoBody {
		return nil
	}
	if request.GetBody == nil {
		return errNotRepeatable
	}
	body, err := request.GetBody()
	request.Body = body
	return err
}

func (p *plane) send(request *http.Request) (*http.Response, error) {
	addressed := request.Clone(request.Context())
	addressed.Header.Set("X-Sandbox-ID", p.name)
	addressed.Header.Set("X-Sandbox-Namespace", p.namespace)
	addressed.Header.Set("X-Sandbox-Port", strconv.Itoa(p.port))
	if p.uid != "" {
		addressed.Header.Set("X-Sandbox-UID", p.uid)
	}
	p.engine.authorize(addressed)
	return p.engine.http.Transport.RoundTrip(addressed)
}

// refusalOf tells the router's own refusal from an answer of the sandbox by its form.
func refusalOf(response *http.Response) *Error {
	if response.StatusCode < 400 || !strings.HasPrefix(response.Header.Get("Content-Type"), jsonType) {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, refusalBytesMax))
	rest := response.Body
	var fields map[string]json.RawMessage
	var detail string
	isRefusal := err == nil && json.Unmarshal(content, &fields) == nil && len(fields) == 1 && json.Unmarshal(fields["detail"], &detail) == nil
	if !isRefusal {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(content), rest), rest}
		return nil
	}
	rest.Close()
	code := codeOfStatus(response.StatusCode)
	switch response.StatusCode {
	case http.StatusConflict:
		code = errorcode.SandboxHeld
	case http.StatusServiceUnavailable:
		code = errorcode.SandboxNotReady
	}
	// Of these the router passes nothing on, and of others only where it says so.
	unsent := response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusServiceUnavailable ||
		response.Header.Get("X-Sandbox-Unsent") == "true"
	return &Error{Code: code, Message: detail, RequestID: response.Header.Get("X-Request-Id"), unsent: unsent}
}
