// Package legacy is the HTTP runtime that the published clients of the 0.5 line speak, and those of the 1.0 line by default.
package legacy

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/beneath"
	"agent-sandbox.dev/native/internal/files"
	"agent-sandbox.dev/native/internal/process"
)

// Runtime answers the legacy paths.
type Runtime struct {
	Registry *process.Registry
	// Directory is the working directory of commands and the root of files; read per request.
	Directory func() string
	// Timeout is how long a command may run when the request does not say; read per request.
	Timeout func() time.Duration
}

// Serve answers one request by its raw path.
func (l *Runtime) Serve(w http.ResponseWriter, r *http.Request, path string) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	routes := map[string]struct {
		method string
		serve  func(http.ResponseWriter, *http.Request, string)
		// takesPath says whether something may follow the name.
		takesPath bool
	}{
		"":        {http.MethodGet, l.root, false},
		"execute": {http.MethodPost, l.execute, false}, "upload": {http.MethodPost, l.upload, false},
		"download": {http.MethodGet, l.download, true}, "list": {http.MethodGet, l.list, true}, "exists": {http.MethodGet, l.exists, true},
	}
	route, ok := routes[name]
	if !ok || rest != "" && !route.takesPath {
		writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
		return
	}
	if r.Method != route.method {
		w.Header().Set("Allow", route.method)
		writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
		return
	}
	decoded, err := url.PathUnescape(rest)
	if err != nil {
		decoded = rest
	}
	route.serve(w, r, decoded)
}

func (l *Runtime) root(w http.ResponseWriter, _ *http.Request, _ string) {
	writeJSON(w, http.StatusOK, struct {
		Status  string `json:"status"`
		Message string `json:"message"`
	}{"ok", "Sandbox Runtime is active."})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"message":"the answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}

func writeMessage(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]string{"message": message})
}

// invalidField is one entry of a 422 answer, in the shape clients know from the framework.
type invalidField struct {
	Type     string `json:"type"`
	Location []any  `json:"loc"`
	Message  string `json:"msg"`
	Input    any    `json:"input"`
}

func writeInvalid(w http.ResponseWriter, field invalidField) {
	writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": []invalidField{field}})
}

// space opens the base directory as it is named now.
func (l *Runtime) space() (*files.Space, error) {
	root, err := beneath.New(l.Directory(), "")
	if err != nil {
		return nil, err
	}
	return files.NewSpace(root), nil
}

// relative strips the slashes that would make a path absolute.
func relative(name string) string { return strings.TrimLeft(name, "/") }

// isDenied says whether a path leads outside, or cannot name anything at all.
func isDenied(err error) bool {
	return errors.Is(err, beneath.ErrEscapes) || errors.Is(err, beneath.ErrInvalid)
}
