package gosdk

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"testing"
)

// runtimeCaller sends what the SDK sends to the legacy runtime through a router.
type runtimeCaller struct {
	box  *box
	base string
}

// do is one attempt: routing headers, a request id, no redirects.
func (r *runtimeCaller) do(t *testing.T, method, path, contentType string, body []byte) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, r.base+path, bytes.NewReader(body))
	must(t, err)
	id := make([]byte, 8)
	_, _ = rand.Read(id)
	for name, value := range map[string]string{
		"X-Sandbox-ID": r.box.sandbox, "X-Sandbox-Namespace": namespace, "X-Sandbox-Port": "8888",
		"X-Sandbox-Timeout": "60", "X-Sandbox-Pod-IP": r.box.ip, "X-Request-ID": hex.EncodeToString(id),
	} {
		request.Header.Set(name, value)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	must(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, answer
}

// run is the SDK's Run.
func (r *runtimeCaller) run(t *testing.T, command string) (stdout string, code int) {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"command": command})
	status, answer := r.do(t, http.MethodPost, "/execute", "application/json", body)
	result := struct {
		Stdout, Stderr string
		ExitCode       int `json:"exit_code"`
	}{ExitCode: -1}
	if err := json.Unmarshal(answer, &result); status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s", command, status, answer)
	}
	return result.Stdout, result.ExitCode
}

// everything is Run, Write, Read, List and Exists, each as the SDK spells it.
func (r *runtimeCaller) everything(t *testing.T) {
	t.Helper()
	if stdout, code := r.run(t, "echo hello"); stdout != "hello\n" || code != 0 {
		t.Errorf("run: %q, %d", stdout, code)
	}
	if _, code := r.run(t, "sh -c 'exit 3'"); code != 3 {
		t.Errorf("exit code %d instead of 3", code)
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	part, err := writer.CreateFormFile("file", "written by go.bin")
	must(t, err)
	_, err = part.Write(content)
	must(t, err)
	must(t, writer.Close())
	if status, answer := r.do(t, http.MethodPost, "/upload", writer.FormDataContentType(), form.Bytes()); status != http.StatusOK {
		t.Errorf("upload: %d %s", status, answer)
	}
	if status, answer := r.do(t, http.MethodGet, "/download/written%20by%20go.bin", "", nil); status != http.StatusOK || !bytes.Equal(answer, content) {
		t.Errorf("download: %d, %d bytes", status, len(answer))
	}
	r.lookAround(t)
}

func (r *runtimeCaller) lookAround(t *testing.T) {
	t.Helper()
	var entries []struct {
		Name, Type string
		Size       int64
		ModTime    float64 `json:"mod_time"`
	}
	// The SDK never sends a bare dot.
	status, answer := r.do(t, http.MethodGet, "/list/%2E", "", nil)
	if err := json.Unmarshal(answer, &entries); status != http.StatusOK || err != nil {
		t.Fatalf("list: %d %s", status, answer)
	}
	found := slices.IndexFunc(entries, func(entry struct {
		Name, Type string
		Size       int64
		ModTime    float64 `json:"mod_time"`
	}) bool {
		return entry.Name == "written by go.bin"
	})
	if found < 0 || entries[found].Size != 640_000 || entries[found].Type != "file" || entries[found].ModTime == 0 {
		t.Errorf("list: %s", answer)
	}
	for path, wanted := range map[string]bool{"written%20by%20go.bin": true, "not%20there": false} {
		var reply struct{ Exists bool }
		status, answer := r.do(t, http.MethodGet, "/exists/"+path, "", nil)
		if err := json.Unmarshal(answer, &reply); status != http.StatusOK || err != nil || reply.Exists != wanted {
			t.Errorf("exists %s: %d %s", path, status, answer)
		}
	}
	if status, _ := r.do(t, http.MethodGet, "/download/not%20there", "", nil); status != http.StatusNotFound {
		t.Errorf("a missing file is %d", status)
	}
}

// The direct URL needs no discovery at all.
func TestDirect(t *testing.T) {
	caller := &runtimeCaller{box: connect(t).open(t), base: setting(t, "API_URL")}
	caller.everything(t)
}
