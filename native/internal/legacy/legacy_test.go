package legacy

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/process"
)

var testReaper = sync.OnceValue(process.NewReaper)

func newRuntime(t testing.TB) (*Runtime, string) {
	t.Helper()
	top, _ := filepath.EvalSymlinks(t.TempDir())
	base := top + "/app"
	os.Mkdir(base, 0o755)
	os.WriteFile(top+"/secret", []byte("secret"), 0o644)
	registry, err := process.NewRegistry(testReaper(), process.Environment(), 10)
	if err != nil {
		t.Fatal(err)
	}
	return &Runtime{Registry: registry, Directory: func() string { return base }, Timeout: func() time.Duration { return 300 * time.Millisecond }}, base
}

func ask(l *Runtime, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "/", strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	l.Serve(recorder, request, path)
	return recorder
}

func expect(t *testing.T, got *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if got.Code != status || got.Body.String() != body {
		t.Errorf("answered %d %s, want %d %s", got.Code, got.Body, status, body)
	}
}

func run(t *testing.T, l *Runtime, body string, headers ...string) executeReply {
	t.Helper()
	got := ask(l, "POST", "/execute", body, headers...)
	var reply executeReply
	if err := json.Unmarshal(got.Body.Bytes(), &reply); err != nil || got.Code != 200 {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	return reply
}

// L1, L2, L3: a shell is opt-in, a failure is told apart from an exit code, and a timeout keeps what was printed.
func TestExecute(t *testing.T) {
	l, base := newRuntime(t)
	for body, want := range map[string]executeReply{
		`{"command":"echo 'a  b' c\\ d"}`:                                {Stdout: "a  b c d\n"},
		`{"command":"echo $HOME && *"}`:                                  {Stdout: "$HOME && *\n"},
		`{"command":"pwd"}`:                                              {Stdout: base + "\n"},
		`{"command":"sh -c 'echo err >&2; exit 4'"}`:                     {Stderr: "err\n", ExitCode: 4},
		`{"command":"sh -c 'kill -9 $$'"}`:                               {ExitCode: -9},
		`{"command":"printf 'a\\r\\nb\\rc\\377'"}`:                       {Stdout: "a\nb\nc\uFFFD"},
		`{"command":"echo $((1+1)) | cat","shell":true}`:                 {Stdout: "2\n"},
		`{"command":"echo 'open"}`:                                       {Stderr: "Failed to execute command: No closing quotation", ExitCode: 1, Error: "No closing quotation"},
		`{"command":"  "}`:                                               {Stderr: "Failed to execute command: list index out of range", ExitCode: 1, Error: "list index out of range"},
		`{"command":"no-such-program x"}`:                                {Stderr: "Failed to execute command: [Errno 2] No such file or directory: 'no-such-program'", ExitCode: 1, Error: "[Errno 2] No such file or directory: 'no-such-program'"},
		`{"command":"sh -c 'echo part; sleep 9'","timeout_seconds":0.2}`: {Stdout: "part\n", ExitCode: 124, TimedOut: true, Error: "Command timed out after 0.2 seconds"},
		`{"command":"sh -c 'echo part; sleep 9'"}`:                       {Stdout: "part\n", Stderr: "Failed to execute command: Command timed out after 0.3 seconds", ExitCode: 1, TimedOut: true, Error: "Command timed out after 0.3 seconds"},
	} {
		if got := run(t, l, body); got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
}

func TestExecuteRefusesBadBodies(t *testing.T) {
	l, _ := newRuntime(t)
	for body, want := range map[string]string{
		`{}`: `"type":"missing","loc":["body","command"],"msg":"Field required"`, `{"command":5}`: `"type":"string_type"`, `{`: `"type":"json_invalid"`, `[]`: `"type":"model_attributes_type"`,
		`{"command":"x","timeout_seconds":-1}`: `"value_error"`, `{"command":"x","timeout_seconds":"soon"}`: `"value_error"`,
	} {
		if got := ask(l, "POST", "/execute", body); got.Code != 422 || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
}

// L4: a call that is sent again with its key runs once.
func TestExecuteOncePerKey(t *testing.T) {
	l, base := newRuntime(t)
	for range 3 {
		run(t, l, `{"command":"sh -c 'echo x >> count'"}`, "Idempotency-Key", "k")
	}
	if text, _ := os.ReadFile(base + "/count"); string(text) != "x\n" {
		t.Errorf("ran more than once: %q", text)
	}
}

func uploadBody(filename, text string) (string, string) {
	var buffer bytes.Buffer
	writer := multipart.NewWriter(&buffer)
	part, _ := writer.CreatePart(map[string][]string{"Content-Disposition": {`form-data; name="file"; filename="` + filename + `"`}})
	io.WriteString(part, text)
	writer.Close()
	return buffer.String(), writer.FormDataContentType()
}

// L5: names are decoded once, broken links do not break a listing.
func TestFiles(t *testing.T) {
	l, base := newRuntime(t)
	body, kind := uploadBody("dir one/ü.txt", "hello")
	expect(t, ask(l, "POST", "/upload", body, "Content-Type", kind), 200, `{"message":"File 'dir one/ü.txt' uploaded successfully."}`)
	got := ask(l, "GET", "/download/dir%20one%2F%C3%BC.txt", "")
	if got.Code != 200 || got.Body.String() != "hello" || got.Header().Get("Content-Disposition") != "attachment; filename*=utf-8''dir%20one/%C3%BC.txt" {
		t.Errorf("%d %s %v", got.Code, got.Body, got.Header())
	}
	expect(t, ask(l, "GET", "/download/none", ""), 404, `{"message":"File not found"}`)
	expect(t, ask(l, "GET", "/download/dir%20one", ""), 404, `{"message":"File not found"}`)
	expect(t, ask(l, "GET", "/exists/dir%20one%2F%C3%BC.txt", ""), 200, `{"path":"dir one/ü.txt","exists":true}`)
	expect(t, ask(l, "GET", "/exists/none", ""), 200, `{"path":"none","exists":false}`)
	expect(t, ask(l, "GET", "/exists/", ""), 200, `{"path":"","exists":true}`)
	expect(t, ask(l, "GET", "/exists/%2541", ""), 200, `{"path":"%41","exists":false}`)
	os.Symlink("gone", base+"/broken")
	os.Symlink("../secret", base+"/outside")
	for _, path := range []string{"/list", "/list/", "/list/%2E", "/list/%2F"} {
		var entries []entry
		got := ask(l, "GET", path, "")
		if err := json.Unmarshal(got.Body.Bytes(), &entries); err != nil || len(entries) != 1 || entries[0].Name != "dir one" || entries[0].Type != "directory" || entries[0].ModTime == 0 {
			t.Errorf("%s: %s %v", path, got.Body, err)
		}
	}
	expect(t, ask(l, "GET", "/list/dir%20one%2F%C3%BC.txt", ""), 404, `{"message":"Path is not a directory"}`)
	os.Mkdir(base+"/empty", 0o755)
	expect(t, ask(l, "GET", "/list/empty", ""), 200, `[]`)
	for _, path := range []string{"/download/..%2Fsecret", "/list/..", "/exists/..%2Fsecret", "/download/outside", "/exists/a%00b"} {
		expect(t, ask(l, "GET", path, ""), 403, `{"message":"Access denied"}`)
	}
	body, kind = uploadBody("../evil", "x")
	expect(t, ask(l, "POST", "/upload", body, "Content-Type", kind), 403, `{"message":"Access denied"}`)
	if got := ask(l, "POST", "/upload", "", "Content-Type", "text/plain"); got.Code != 422 {
		t.Errorf("upload without a file: %d", got.Code)
	}
}

func TestFrameworkAnswers(t *testing.T) {
	l, _ := newRuntime(t)
	expect(t, ask(l, "GET", "/", ""), 200, `{"status":"ok","message":"Sandbox Runtime is active."}`)
	expect(t, ask(l, "GET", "/nothing", ""), 404, `{"detail":"Not Found"}`)
	expect(t, ask(l, "GET", "/execute/x", ""), 404, `{"detail":"Not Found"}`)
	expect(t, ask(l, "GET", "/execute", ""), 405, `{"detail":"Method Not Allowed"}`)
	if got := ask(l, "HEAD", "/", ""); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %d", got.Code)
	}
}

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"": nil, " a  b ": {"a", "b"}, `'a b' "c d"`: {"a b", "c d"}, `a\ b`: {"a b"}, `"a\"b\\c\d"`: {`a"b\c\d`}, `'a\b'`: {`a\b`}, `''`: {""}, `a''b`: {"ab"}, "a\nb\tc": {"a", "b", "c"}, `x"y"'z'`: {"xyz"},
	} {
		if got, err := Split(line); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q %v", line, got, err)
		}
	}
	for line, want := range map[string]error{`"a`: errNoQuotation, `'a`: errNoQuotation, `a\`: errNoEscaped} {
		if _, err := Split(line); err != want {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(`echo "a b" 'c' \d`)
	f.Fuzz(func(t *testing.T, line string) {
		words, err := Split(line)
		if err != nil {
			return
		}
		quoted := make([]string, len(words))
		for i, word := range words {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
		}
		again, err := Split(strings.Join(quoted, " "))
		if err != nil || len(again) != len(words) {
			t.Fatalf("%q: %q then %q %v", line, words, again, err)
		}
		for i := range words {
			if words[i] != again[i] {
				t.Fatalf("%q: %q then %q", line, words, again)
			}
		}
	})
}

func FuzzUpload(f *testing.F) {
	body, kind := uploadBody("a/b", "text")
	f.Add(kind, []byte(body))
	f.Add("multipart/form-data; boundary=x", []byte("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../\xff\"\r\n\r\ny\r\n--x--"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		l, base := newRuntime(t)
		ask(l, "POST", "/upload", string(body), "Content-Type", contentType)
		if names, _ := os.ReadDir(filepath.Dir(base)); len(names) != 2 {
			t.Fatalf("an upload left the base directory: %v", names)
		}
	})
}
