package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"
)

// writeJSON answers with one object and a newline.
func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code":"INTERNAL","message":"the answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// errorBody is the shape of every error under /v1.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func writeError(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, errorBody{code, message})
}

// allowMethods answers 405 unless the method is one of those listed.
func allowMethods(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, method := range methods {
		if r.Method == method {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	writeError(w, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "Method Not Allowed")
	return false
}

func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request, name string) {
	answers := map[string]func(http.ResponseWriter){
		"health": s.health, "metadata": s.showMetadata, "activity": s.showActivity, "metrics": s.showMetrics, "ports": s.showPorts,
	}
	answer, ok := answers[name]
	if !ok {
		writeError(w, http.StatusNotFound, "NOT_FOUND", "no such endpoint")
		return
	}
	if allowMethods(w, r, http.MethodGet, http.MethodHead) {
		answer(w)
	}
}

func (s *Server) health(w http.ResponseWriter) {
	if s.closing.begun.Load() {
		writeError(w, http.StatusServiceUnavailable, "UNAVAILABLE", "sandboxd is shutting down")
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Status        string `json:"status"`
		UptimeSeconds int    `json:"uptime_seconds"`
	}{"ok", int(time.Since(s.startedAt).Seconds())})
}

func (s *Server) showMetadata(w http.ResponseWriter) {
	writeJSON(w, http.StatusOK, map[string]any{"env": s.metadata()})
}

// secretMarkers in a variable's name keep it out of the metadata.
var secretMarkers = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CRED", "KEY", "AUTH", "BEARER", "PRIVATE", "CERT"}

// metadataOf picks the variables that may be shown, once.
func metadataOf(environment []string, prefix string) func() map[string]string {
	return sync.OnceValue(func() map[string]string {
		shown := map[string]string{}
		for _, entry := range environment {
			name, value, ok := strings.Cut(entry, "=")
			if ok && strings.HasPrefix(name, prefix) && !isSecret(name) {
				shown[name] = value
			}
		}
		return shown
	})
}

func isSecret(name string) bool {
	upper := strings.ToUpper(name)
	for _, marker := range secretMarkers {
		if strings.Contains(upper, marker) {
			return true
		}
	}
	return false
}

func (s *Server) showActivity(w http.ResponseWriter) {
	writeJSON(w, http.StatusOK, struct {
		LiveProcesses      int       `json:"liveProcesses"`
		OpenStreams        int64     `json:"openStreams"`
		InboundConnections int       `json:"inboundConnections"`
		LastActivityAt     time.Time `json:"lastActivityAt"`
		StartedAt          time.Time `json:"startedAt"`
	}{s.options.Registry.Running(), s.activity.Open(), s.inbound(), s.activity.LastAt().UTC(), s.startedAt.UTC()})
}

func (s *Server) showMetrics(w http.ResponseWriter) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# TYPE sandboxd_requests_total counter\n")
	for kind, name := range kindNames {
		fmt.Fprintf(w, "sandboxd_requests_total{kind=%q} %d\n", name, s.activity.total[kind].Load())
	}
	fmt.Fprintf(w, "# TYPE sandboxd_requests_open gauge\nsandboxd_requests_open %d\n", s.activity.Open())
	fmt.Fprintf(w, "# TYPE sandboxd_processes_running gauge\nsandboxd_processes_running %d\n", s.options.Registry.Running())
	fmt.Fprintf(w, "# TYPE sandboxd_processes_started_total counter\nsandboxd_processes_started_total %d\n", s.options.Registry.Started())
	fmt.Fprintf(w, "# TYPE sandboxd_last_activity_seconds gauge\nsandboxd_last_activity_seconds %.3f\n", float64(s.activity.LastAt().UnixMilli())/1000)
	fmt.Fprintf(w, "# TYPE sandboxd_uptime_seconds gauge\nsandboxd_uptime_seconds %.3f\n", time.Since(s.startedAt).Seconds())
	fmt.Fprintf(w, "# TYPE sandboxd_heap_bytes gauge\nsandboxd_heap_bytes %d\n", memory.HeapInuse)
}
