package daemon

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRestRoundTrip(t *testing.T) {
	w := newWorld(t)
	w.expect(w.request("PUT", "/v1/files/a%20b%2F%C3%BC.txt", "hello"), 204, "")
	if w.read("a b/ü.txt") != "hello" {
		t.Error("contents differ")
	}
	for _, target := range []string{"/v1/files/a%20b%2F%C3%BC.txt", "/v1/files/a%20b/%C3%BC.txt", "/v1/files//a%20b/./%C3%BC.txt", "/v1/files/%2Fa%20b%2F%C3%BC.txt"} {
		got := w.request("GET", target, "")
		w.expect(got, 200, "hello")
		if got.header.Get("Content-Type") != "application/octet-stream" || got.header.Get("Accept-Ranges") != "bytes" || got.header.Get("Last-Modified") == "" {
			t.Errorf("%s: headers %v", target, got.header)
		}
	}
	head := w.request("HEAD", "/v1/files/a%20b%2F%C3%BC.txt", "")
	if head.status != 200 || head.header.Get("Content-Length") != "5" || head.body != "" {
		t.Errorf("HEAD %+v", head)
	}
	if got := w.request("HEAD", "/v1/files/none", ""); got.status != 404 {
		t.Errorf("HEAD of nothing: %d", got.status)
	}
	w.expect(w.request("GET", "/v1/files/none", ""), 404, `{"code":"NOT_FOUND","message":"path does not exist within the sandbox"}`)
	w.expect(w.request("GET", "/v1/files/a%20b%2F%C3%BC.txt%2Fx", ""), 404, "NOT_FOUND")
}

func TestRestModes(t *testing.T) {
	w := newWorld(t)
	w.expect(w.request("PUT", "/v1/files/x?mode=0755", "x"), 204, "")
	if info, _ := os.Stat(w.root + "/x"); info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", info.Mode())
	}
	for _, mode := range []string{"0999", "777", "abcd", "01777"} {
		w.expect(w.request("PUT", "/v1/files/y?mode="+mode, "x"), 400, `must match ^0[0-7]{3}$`)
	}
	w.expect(w.request("PUT", "/v1/files/z?mode=", "x"), 204, "")
	if info, _ := os.Stat(w.root + "/z"); info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
}

func multipartBody(field, text string) (body, contentType string) {
	var buffer bytes.Buffer
	writer := multipart.NewWriter(&buffer)
	other, _ := writer.CreateFormField("note")
	io.WriteString(other, "ignored")
	part, _ := writer.CreateFormFile(field, "name.txt")
	io.WriteString(part, text)
	writer.Close()
	return buffer.String(), writer.FormDataContentType()
}

func TestRestMultipart(t *testing.T) {
	w := newWorld(t)
	body, kind := multipartBody("file", "from a part")
	w.expect(w.request("PUT", "/v1/files/m", body, "Content-Type", kind), 204, "")
	if w.read("m") != "from a part" {
		t.Error("contents differ")
	}
	body, kind = multipartBody("other", "x")
	w.expect(w.request("PUT", "/v1/files/m2", body, "Content-Type", kind), 400, `multipart body is missing the required \"file\" part`)
	w.expect(w.request("PUT", "/v1/files/m3", "garbage", "Content-Type", kind), 400, "invalid multipart body: ")
	if _, err := os.Stat(w.root + "/m2"); err == nil {
		t.Error("a refused upload left a file")
	}
}

func TestRestListing(t *testing.T) {
	w := newWorld(t)
	w.expect(w.request("GET", "/v1/files/", ""), 200, `{"path":"/","entries":[]}`)
	w.write("b.txt", "12345")
	w.write("a/inner", "")
	w.write(".sandboxd-tmp-0000000000000000", "half")
	os.Symlink("b.txt", w.root+"/link")
	os.Symlink("nowhere", w.root+"/broken")
	os.Symlink("../secret", w.root+"/outside")
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	os.Chtimes(w.root+"/b.txt", when, when)
	var got listing
	for _, target := range []string{"/v1/files", "/v1/files/", "/v1/files/.", "/v1/files/%2E", "/v1/files/%2F"} {
		answer := w.request("GET", target, "")
		w.expect(answer, 200, `"entries":[`)
		if err := json.Unmarshal([]byte(answer.body), &got); err != nil || len(got.Entries) != 3 {
			t.Fatalf("%s: %v %v", target, got, err)
		}
	}
	want := entry{Name: "b.txt", Size: 5, Type: "file", ModifiedAt: "2026-01-02T03:04:05Z", Mode: "0644"}
	link := want
	link.Name = "link"
	if got.Entries[0].Name != "a" || got.Entries[0].Type != "directory" || got.Entries[1] != want || got.Entries[2] != link {
		t.Errorf("entries %+v", got.Entries)
	}
	w.expect(w.request("GET", "/v1/files/a%2F", ""), 200, `{"path":"/a/","entries":[{"name":"inner"`)
	w.expect(w.request("GET", "/v1/files?recursive=true", ""), 200, `"name":"a/inner"`)
}

func TestRestTraversalIsForbidden(t *testing.T) {
	w := newWorld(t)
	os.Symlink("..", w.root+"/up")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		for _, target := range []string{"..%2Fsecret", "%2E%2E%2Fsecret", "../secret", "..", "%2E%2E", "up%2Fsecret", "up%2Fnew", "a%2F..%2F..%2Fsecret"} {
			w.expect(w.request(method, "/v1/files/"+target, "evil"), 403, "path traversal outside sandbox root is forbidden")
		}
	}
	if w.read("../secret") != "secret" {
		t.Error("the secret changed")
	}
	w.expect(w.request("GET", "/v1/files/a%00b", ""), 400, "INVALID_ARGUMENT")
	w.expect(w.request("GET", "/v1/files/%zz", ""), 400, "")
}

func TestRestDelete(t *testing.T) {
	w := newWorld(t)
	w.write("f", "x")
	w.write("d/e", "x")
	w.expect(w.request("DELETE", "/v1/files/f", ""), 204, "")
	w.expect(w.request("DELETE", "/v1/files/f", ""), 404, "NOT_FOUND")
	w.expect(w.request("DELETE", "/v1/files/d?recursive=banana", ""), 400, `recursive \"banana\" must be a boolean`)
	w.expect(w.request("DELETE", "/v1/files/d", ""), 409, "directory is not empty; pass recursive=true to remove it")
	w.expect(w.request("DELETE", "/v1/files/d?recursive=true", ""), 204, "")
	w.write("again", "x")
	w.expect(w.request("DELETE", "/v1/files/", ""), 409, "cannot delete the sandbox root; pass recursive=true to clear its contents")
	w.expect(w.request("DELETE", "/v1/files/?recursive=1", ""), 204, "")
	w.expect(w.request("GET", "/v1/files/", ""), 200, `"entries":[]`)
	w.expect(w.request("PUT", "/v1/files/", "x"), 400, "target path is a directory")
}

func TestRestRangesAndConditions(t *testing.T) {
	w := newWorld(t)
	tag := w.request("PUT", "/v1/files/f", "0123456789").header.Get("ETag")
	w.expect(w.request("GET", "/v1/files/f", "", "Range", "bytes=2-4"), 206, "234")
	w.expect(w.request("GET", "/v1/files/f", "", "Range", "bytes=20-"), 416, "")
	w.expect(w.request("GET", "/v1/files/f", "", "If-None-Match", tag), 304, "")
	w.expect(w.request("PUT", "/v1/files/f", "x", "If-None-Match", "*"), 412, "FAILED_PRECONDITION")
	w.expect(w.request("PUT", "/v1/files/f", "x", "If-Match", `"stale"`), 412, "FAILED_PRECONDITION")
	w.expect(w.request("PUT", "/v1/files/f", "abc", "If-Match", tag), 204, "")
	w.expect(w.request("PUT", "/v1/files/f?append=true", "def"), 204, "")
	w.expect(w.request("PUT", "/v1/files/f?offset=1", "X"), 204, "")
	w.expect(w.request("GET", "/v1/files/f", ""), 200, "aXcdef")
	w.expect(w.request("PUT", "/v1/files/f?offset=-1", "X"), 400, "offset")
}

// R12: what the published service lacks is there beside it.
func TestRestOperationsAndArchives(t *testing.T) {
	w := newWorld(t)
	w.write("src/a", "A")
	w.expect(w.request("POST", "/v1/files/new%2Fdir?op=mkdir", ""), 204, "")
	w.expect(w.request("POST", "/v1/files/src?op=copy&to=copy&recursive=true", ""), 204, "")
	w.expect(w.request("POST", "/v1/files/copy?op=move&to=new/moved", ""), 204, "")
	w.expect(w.request("POST", "/v1/files/src?op=move&to=..%2Fout", ""), 403, "PERMISSION_DENIED")
	w.expect(w.request("POST", "/v1/files/src?op=dance", ""), 400, "op")
	if w.read("new/moved/a") != "A" {
		t.Error("the copy differs")
	}
	packed := w.request("GET", "/v1/files/src?format=tar", "")
	if packed.status != 200 || packed.header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("archive: %d %v", packed.status, packed.header)
	}
	w.expect(w.request("PUT", "/v1/files/unpacked?extract=tar", packed.body), 204, "")
	if w.read("unpacked/a") != "A" {
		t.Error("the archive differs")
	}
	w.expect(w.request("PUT", "/v1/files/bad?extract=tar", strings.Repeat("x", 1024)), 400, "archive is not valid")
}

func TestOwnFilesAreThoseOfTheSystem(t *testing.T) {
	w := newWorld(t)
	w.write("here", "relative")
	w.expect(w.request("GET", "/v1/fs/here", ""), 200, "relative")
	w.expect(w.request("GET", "/v1/fs/%2Fetc%2Fpasswd", ""), 200, "root:")
	w.expect(w.request("GET", "/v1/fs/..%2Fsecret", ""), 200, "secret")
}

// R15: health, figures and activity are served.
func TestStatusEndpoints(t *testing.T) {
	w := newWorld(t)
	w.expect(w.request("GET", "/v1/health", ""), 200, `{"status":"ok","uptime_seconds":0}`)
	w.expect(w.request("GET", "/v1/metadata", ""), 200, `{"env":{"SANDBOX_ID":"x1"}}`)
	w.expect(w.request("GET", "/v1/metrics", ""), 200, "sandboxd_processes_running 0")
	w.expect(w.request("POST", "/v1/health", ""), 405, "METHOD_NOT_ALLOWED")
	w.expect(w.request("PATCH", "/v1/files/x", ""), 405, "METHOD_NOT_ALLOWED")
	w.expect(w.request("GET", "/v1/unknown", ""), 404, `"code":"NOT_FOUND"`)
}

func TestLookingIsNotActivity(t *testing.T) {
	w := newWorld(t)
	before := w.server.activity.LastAt()
	for _, target := range []string{"/v1/health", "/v1/activity", "/v1/metrics", "/v1/metadata", "/v1/ports"} {
		w.request("GET", target, "")
	}
	if !w.server.activity.LastAt().Equal(before) {
		t.Error("a look counted as activity")
	}
	w.request("GET", "/v1/files/", "")
	if !w.server.activity.LastAt().After(before) {
		t.Error("a file call did not count")
	}
	w.expect(w.request("GET", "/v1/activity", ""), 200, `"liveProcesses":0,"openStreams":0,"inboundConnections":`)
}

// R13: an upload that breaks off leaves no trace.
func TestBrokenUploadLeavesNothing(t *testing.T) {
	w := newWorld(t)
	connection, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(connection, "PUT /v1/files/big HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nonly this")
	time.Sleep(50 * time.Millisecond)
	connection.Close()
	for deadline := time.Now().Add(5 * time.Second); w.server.activity.Open() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the request did not end")
		}
	}
	if entries, _ := os.ReadDir(w.root); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// R1: where a token is asked for, nobody passes without it.
func TestInvariantDaemonTrustsNobody(t *testing.T) {
	file := t.TempDir() + "/token"
	now := time.Now()
	w := newWorld(t, func(o *Options) { o.Token = NewToken(file, func() time.Time { return now }) })
	w.expect(w.request("GET", "/v1/health", ""), 200, "ok")
	w.expect(w.request("GET", "/v1/files/", "", "Authorization", "Bearer one"), 401, "UNAUTHENTICATED")
	os.WriteFile(file, []byte("one\n"), 0o600)
	now = now.Add(2 * tokenCheckEvery)
	for _, target := range []string{"/v1/files/", "/", "/v1/activity", "/process.v1.ProcessService/Execute"} {
		w.expect(w.request("GET", target, ""), 401, "UNAUTHENTICATED")
	}
	w.expect(w.request("GET", "/v1/files/", "", "Authorization", "Bearer one"), 200, "entries")
	os.WriteFile(file, []byte("two\none"), 0o600)
	now = now.Add(2 * tokenCheckEvery)
	w.expect(w.request("GET", "/v1/files/", "", "Authorization", "bearer two"), 200, "entries")
	w.expect(w.request("GET", "/v1/files/", "", "Authorization", "Bearer one"), 200, "entries")
	os.WriteFile(file, []byte("two"), 0o600)
	now = now.Add(2 * tokenCheckEvery)
	w.expect(w.request("GET", "/v1/files/", "", "Authorization", "Bearer one"), 401, "UNAUTHENTICATED")
	os.Remove(file)
	now = now.Add(2 * tokenCheckEvery)
	w.expect(w.request("GET", "/v1/files/", "", "Authorization", "Bearer two"), 401, "UNAUTHENTICATED")
}

func FuzzBearer(f *testing.F) {
	for _, seed := range []string{"Bearer x", "bearer  y ", "Basic x", "Bearer", "", "Bearer \x00"} {
		f.Add(seed)
	}
	file := f.TempDir() + "/token"
	os.WriteFile(file, []byte("s3cret"), 0o600)
	token := NewToken(file, time.Now)
	f.Fuzz(func(t *testing.T, header string) {
		given, ok := parseBearer(header)
		if token.Allows(header) != (ok && given == "s3cret") {
			t.Fatalf("%q", header)
		}
	})
}

func FuzzFilePart(f *testing.F) {
	body, kind := multipartBody("file", "text")
	f.Add(kind, []byte(body))
	f.Add("multipart/form-data; boundary=x", []byte("--x\r\n\r\n--x--"))
	f.Add("multipart/form-data", []byte(""))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		if reader, err := filePart(contentType, bytes.NewReader(body)); err == nil {
			n, _ := io.Copy(io.Discard, reader)
			if n > int64(len(body)) {
				t.Fatal("a part is longer than the body")
			}
		}
	})
}
