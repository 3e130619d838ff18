package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

func TestRefusalsOfTheRouter(t *testing.T) {
	for status, code := range map[int]errorcode.Code{
		400: errorcode.InvalidArgument, 401: errorcode.Unauthenticated, 403: errorcode.PermissionDenied, 404: errorcode.NotFound,
		409: errorcode.SandboxHeld, 410: errorcode.SandboxExpired, 429: errorcode.QuotaExceeded, 502: errorcode.Unavailable, 504: errorcode.RequestTimeout,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
				writeJSON(w, status, map[string]any{"detail": "because"})
			})
			err := handleOf(server.URL).Command(t.Context(), "x").Run()
			if CodeOf(err) != code || messageOf(err) != "because" {
				t.Fatalf("got %s: %v", CodeOf(err), err)
			}
		})
	}
}

func TestRequestNamesTheSandbox(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, count int) {
		if count == 1 {
			writeJSON(w, http.StatusServiceUnavailable, map[string]any{"detail": "starting"})
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write([]byte("content"))
	})
	content, err := handleOf(server.URL).Files().Read(t.Context(), "/a b/\xff/..")
	if err != nil || string(content) != "content" {
		t.Fatalf("got %q, %v", content, err)
	}
	asked := server.requests[1]
	if asked.path != "/v1/fs/%2Fa%20b%2F%FF%2F%2E%2E" {
		t.Fatalf("asked for %s", asked.path)
	}
	for name, value := range map[string]string{
		"X-Sandbox-Id": "box", "X-Sandbox-Namespace": "default", "X-Sandbox-Port": "49900", "X-Sandbox-Uid": "uid-1", "Authorization": "Bearer secret",
	} {
		if asked.header.Get(name) != value {
			t.Errorf("%s is %q", name, asked.header.Get(name))
		}
	}
}

func TestFileErrors(t *testing.T) {
	for status, code := range map[int]errorcode.Code{403: errorcode.PermissionDenied, 404: errorcode.NotFound, 412: errorcode.Conflict, 507: errorcode.NoSpace} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
			writeJSON(w, status, map[string]any{"code": "X", "message": "because"})
		})
		if err := handleOf(server.URL).Files().Write(t.Context(), "/x", nil); CodeOf(err) != code {
			t.Errorf("%d became %v", status, err)
		}
	}
}

func TestReadingADirectorySaysSo(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
		writeJSON(w, 200, map[string]any{"entries": []any{}})
	})
	if _, err := handleOf(server.URL).Files().Read(t.Context(), "/tmp"); CodeOf(err) != errorcode.IsADirectory {
		t.Fatalf("got %v", err)
	}
}

func TestFileSystemErrorsAreThoseOfFS(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
		writeJSON(w, 404, map[string]any{"code": "NOT_FOUND", "message": "gone"})
	})
	files := handleOf(server.URL).Files()
	if _, err := fs.ReadFile(files, "no/such"); !errors.Is(err, fs.ErrNotExist) || CodeOf(err) != errorcode.NotFound {
		t.Fatalf("got %v", err)
	}
	if _, err := fs.ReadFile(files, "/rooted"); !errors.Is(err, fs.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
}

func readySandbox(status, reason string) map[string]any {
	condition := map[string]any{"type": "Ready", "status": status, "reason": reason, "message": "because", "observedGeneration": 1}
	return map[string]any{
		"metadata": map[string]any{"name": "box", "namespace": "default", "uid": "uid-1", "generation": 1, "resourceVersion": "5"},
		"spec":     map[string]any{}, "status": map[string]any{"conditions": []any{condition}},
	}
}

func TestCreateWaitsUntilReady(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
		writeJSON(w, 200, readySandbox("True", "DependenciesReady"))
	})
	box, err := Create(t.Context(), WithEngine(engineAt(server.URL)), WithName("box"), WithEnv(map[string]string{"B": "2", "A": "1"}))
	if err != nil || box.UID != "uid-1" {
		t.Fatalf("got %v, %v", box, err)
	}
	made := string(server.requests[0].body)
	if !strings.Contains(made, hostImage) || !strings.Contains(made, `"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}]`) {
		t.Fatalf("made %s", made)
	}
}

func TestHowItSleepsWakesAndRecoversReachesTheObject(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
		writeJSON(w, 200, readySandbox("True", "DependenciesReady"))
	})
	policy := PodFailurePolicy{Type: "Recreate", RetriesMax: 2}
	_, err := Create(t.Context(), WithEngine(engineAt(server.URL)), WithSuspensionStrategy("Freeze"), WithWakePolicy("Never"), WithPodFailurePolicy(policy),
		WithAutoSuspend(time.Minute), WithHibernateAfter(time.Hour))
	made := string(server.requests[0].body)
	for _, part := range []string{`"autoSuspension":{"hibernateAfterSeconds":3600,"inactivityTimeoutSeconds":60}`, `"suspensionStrategy":{"type":"Freeze"}`, `"wakePolicy":"Never"`, `"podFailurePolicy":{"type":"Recreate","retriesMax":2}`} {
		if err != nil || !strings.Contains(made, part) {
			t.Errorf("no %s in %s, %v", part, made, err)
		}
	}
}

func TestASecondTimeOfIdlenessNeedsTheFirst(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) { writeJSON(w, 500, nil) })
	_, err := Create(t.Context(), WithEngine(engineAt(server.URL)), WithHibernateAfter(time.Hour))
	if CodeOf(err) != errorcode.InvalidArgument || len(server.requests) != 0 {
		t.Fatalf("got %v after %d requests", err, len(server.requests))
	}
}

func TestAColdResumeNamesTheSleepThatItGivesUp(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request, _ []byte, _ int) {
		answer := readySandbox("True", "DependenciesReady")
		if r.Method == http.MethodGet {
			answer["status"].(map[string]any)["sleep"] = map[string]any{"id": "17", "rung": "Hibernate"}
		}
		writeJSON(w, 200, answer)
	})
	box, err := Get(t.Context(), "box", WithEngine(engineAt(server.URL)))
	if err == nil {
		err = box.ResumeCold(t.Context())
	}
	var sent strings.Builder
	for _, request := range server.requests {
		sent.Write(request.body)
	}
	if err != nil || !strings.Contains(sent.String(), `"agent-sandbox.dev/cold-start":"17"`) {
		t.Fatalf("sent %s, %v", sent.String(), err)
	}
}

func TestCreateFailsEarlyAndCleansUp(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
		writeJSON(w, 200, readySandbox("False", "InvalidConfiguration"))
	})
	_, err := Create(t.Context(), WithEngine(engineAt(server.URL)))
	last := server.requests[len(server.requests)-1]
	if CodeOf(err) != errorcode.InvalidArgument || last.method != http.MethodDelete || !strings.Contains(string(last.body), `"uid":"uid-1"`) {
		t.Fatalf("got %v; last request %s %s", err, last.method, last.body)
	}
}

func TestAClaimIsChangedAndDeletedByItsUID(t *testing.T) {
	held := readySandbox("True", "DependenciesReady")
	held["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"kind": "SandboxClaim", "name": "mine", "uid": "claim-uid", "controller": true}}
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) { writeJSON(w, 200, held) })
	box, err := Get(t.Context(), "box", WithEngine(engineAt(server.URL)))
	if err == nil {
		err = errors.Join(box.SetTimeout(t.Context(), time.Hour), box.Delete(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range server.requests[1:] {
		if !strings.HasSuffix(strings.Split(asked.path, "?")[0], "/sandboxclaims/mine") || !strings.Contains(string(asked.body), `"uid":"claim-uid"`) {
			t.Errorf("%s %s %s", asked.method, asked.path, asked.body)
		}
	}
	if len(server.requests) != 3 {
		t.Errorf("%d requests", len(server.requests))
	}
}

func TestExtendReturnsTheEnd(t *testing.T) {
	mortal := readySandbox("True", "DependenciesReady")
	mortal["spec"] = map[string]any{"shutdownTime": "2030-01-01T00:00:00Z"}
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) { writeJSON(w, 200, mortal) })
	end, err := handleOf(server.URL).Extend(t.Context(), time.Minute)
	if err != nil || !end.Equal(time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)) {
		t.Fatalf("got %s, %v", end, err)
	}
}

func TestStatusBecomesItsCode(t *testing.T) {
	for reason, code := range map[string]errorcode.Code{
		"NotFound": errorcode.NotFound, "AlreadyExists": errorcode.AlreadyExists, "Forbidden": errorcode.PermissionDenied, "Invalid": errorcode.InvalidArgument,
	} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
			writeJSON(w, 422, map[string]any{"kind": "Status", "reason": reason, "message": "because"})
		})
		if _, err := Get(t.Context(), "box", WithEngine(engineAt(server.URL))); CodeOf(err) != code {
			t.Errorf("%s became %v", reason, err)
		}
	}
}

func TestHandleOfAnotherIncarnationIsNotFound(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
		writeJSON(w, 200, readySandbox("True", "DependenciesReady"))
	})
	written, err := json.Marshal(&Sandbox{Name: "box", Namespace: "default", UID: "another"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := From(t.Context(), written, WithEngine(engineAt(server.URL))); CodeOf(err) != errorcode.NotFound {
		t.Fatalf("got %v", err)
	}
}

func writeKubeconfig(t *testing.T) string {
	t.Helper()
	content := `{current-context: a, contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}],
clusters: [{name: a, cluster: {server: "https://a"}}, {name: b, cluster: {server: "https://b"}}], users: []}`
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFindEngine(t *testing.T) {
	file := writeKubeconfig(t)
	runDir = t.TempDir()
	for _, name := range []string{"KUBECONFIG", "CONTEXT", "DATA_DIR", "ROUTER_URL"} {
		t.Setenv("AGENT_SANDBOX_"+name, "")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", file)
	t.Setenv("AGENT_SANDBOX_DATA_DIR", "/nowhere")
	if _, err := FindEngine(EngineOptions{}); CodeOf(err) != errorcode.EngineNotFound || !strings.Contains(err.Error(), "up --detach --data-dir /nowhere") {
		t.Errorf("the current context was used unasked: %v", err)
	}
	t.Setenv("AGENT_SANDBOX_CONTEXT", "b")
	if found, err := FindEngine(EngineOptions{}); err != nil || found.credentials.server != "https://b" {
		t.Errorf("environment: %v, %v", found, err)
	}
	if found, err := FindEngine(EngineOptions{Kubeconfig: file, Context: "a"}); err != nil || found.credentials.server != "https://a" {
		t.Errorf("option: %v, %v", found, err)
	}
	record, err := recordFile("/data")
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]any{"kubeconfig": file, "routerUrl": "http://127.0.0.1:7080"})
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(record), 0o755), os.WriteFile(record, content, 0o644)); err != nil {
		t.Fatal(err)
	}
	if found, err := FindEngine(EngineOptions{DataDir: "/data"}); err != nil || found.routerURL != "https://127.0.0.1:7080" || !found.isLocal {
		t.Errorf("record: %v, %v", found, err)
	}
}

func TestJudgeSuspended(t *testing.T) {
	for reason, row := range map[string]struct {
		status string
		code   errorcode.Code
	}{
		"PodFrozen":                      {"True", ""},
		"PodFreezing":                    {"False", ""},
		"SuspensionFailed":               {"False", errorcode.SuspensionFailed},
		"SuspensionStrategyNotAvailable": {"False", errorcode.Unsupported},
	} {
		t.Run(reason, func(t *testing.T) {
			status := `{"conditions":[{"type":"Suspended","status":"` + row.status + `","reason":"` + reason + `","message":"the disk is full"}]}`
			verdict := judgeSuspended(&object{Status: json.RawMessage(status)})
			if verdict.done != (row.status == "True") || (verdict.err != nil) != (row.code != "") {
				t.Fatalf("got %+v", verdict)
			}
			if verdict.err != nil && (verdict.err.Code != row.code || verdict.err.Message != "the disk is full") {
				t.Fatalf("got %+v", verdict.err)
			}
		})
	}
}

func TestJudgePod(t *testing.T) {
	for name, row := range map[string]struct {
		status string
		code   errorcode.Code
	}{
		"creating":      {`{"containerStatuses":[{"state":{"waiting":{"reason":"ContainerCreating"}}}]}`, ""},
		"first pull":    {`{"containerStatuses":[{"state":{"waiting":{"reason":"ErrImagePull"}}}]}`, ""},
		"bad image":     {`{"containerStatuses":[{"state":{"waiting":{"reason":"ImagePullBackOff"}}}]}`, errorcode.InvalidArgument},
		"crashes":       {`{"containerStatuses":[{"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}`, errorcode.CrashLoop},
		"unschedulable": {`{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}`, errorcode.QuotaExceeded},
		"volume":        {`{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"pod has unbound immediate PersistentVolumeClaims"}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			verdict := judgePod(&object{Status: json.RawMessage(row.status)}, true)
			if verdict.err == nil && row.code != "" || verdict.err != nil && verdict.err.Code != row.code {
				t.Fatalf("got %+v", verdict)
			}
		})
	}
}

func TestCreateThatIsGivenUpIsUndone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := serve(t, func(w http.ResponseWriter, r *http.Request, _ []byte, _ int) {
		if r.Method == http.MethodPost {
			cancel()
		}
		writeJSON(w, http.StatusOK, map[string]any{"metadata": map[string]any{"name": "made", "namespace": "default", "uid": "uid-1"}})
	})
	_, err := Create(ctx, WithEngine(engineAt(server.URL)))
	server.mutex.Lock()
	defer server.mutex.Unlock()
	last := server.requests[len(server.requests)-1]
	if !errors.Is(err, context.Canceled) || last.method != http.MethodDelete || !strings.HasSuffix(last.path, "/made") || !strings.Contains(string(last.body), "uid-1") {
		t.Fatalf("got %v; last asked %s %s", err, last.method, last.path)
	}
}
