package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"agent-sandbox.dev/sdk/errorcode"
)

// OpenPort is a TCP port that something in the sandbox listens on.
type OpenPort struct {
	Port int
	// Addresses are where it listens: "0.0.0.0" and "::" are all addresses, "127.0.0.1" and "::1" the sandbox's own.
	Addresses []string
}

// Ports returns what listens in the sandbox, in ascending order; a sleeping sandbox is woken by it.
func (b *Sandbox) Ports(ctx context.Context) ([]OpenPort, error) {
	content, err := b.status(ctx, "ports")
	if err != nil {
		return nil, err
	}
	var told struct{ Ports []OpenPort }
	if err := json.Unmarshal(content, &told); err != nil {
		return nil, wrapError(errorcode.ProtocolError, err, "ports")
	}
	return told.Ports, nil
}

// Metrics returns figures of the daemon in the sandbox, by name; a sleeping sandbox is woken by it.
func (b *Sandbox) Metrics(ctx context.Context) (map[string]float64, error) {
	content, err := b.status(ctx, "metrics")
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if space := strings.LastIndexByte(line, ' '); space > 0 && !strings.HasPrefix(line, "#") {
			if value, err := strconv.ParseFloat(line[space+1:], 64); err == nil {
				figures[line[:space]] = value
			}
		}
	}
	return figures, nil
}

// status reads one of the daemon's own pages.
func (b *Sandbox) status(ctx context.Context, page string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.engine.baseURL()+"/v1/"+page, nil)
	if err != nil {
		return nil, wrapError(errorcode.InvalidArgument, err, "the router's address")
	}
	response, err := b.plane.client().Do(request)
	if err != nil {
		return nil, callError(ctx, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, callError(ctx, err)
	}
	if response.StatusCode == http.StatusOK {
		return content, nil
	}
	code := codeOfStatus(response.StatusCode)
	if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusNotImplemented {
		// No daemon of ours, or one that is older than this page.
		code = errorcode.Unsupported
	}
	message := fmt.Sprintf("%s: the sandbox answered %d: %.500s", page, response.StatusCode, strings.TrimSpace(string(content)))
	return nil, &Error{Code: code, Message: message, RequestID: response.Header.Get("X-Request-Id")}
}
