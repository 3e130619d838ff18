package daemon

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRequest sends raw targets and headers; whatever they are, nothing outside the root changes or shows.
func FuzzRequest(f *testing.F) {
	for _, target := range []string{"/v1/files/a", "/v1/files/..%2Fsecret", "/v1/files/%2e%2e/secret?recursive=true", "//v1//files", "/v1/files/a?offset=1&append=1", "http://h/v1/files/../secret", "/download/..%2Fsecret", "*"} {
		f.Add("GET", target, "bytes=0-", "*", "text/plain")
		f.Add("PUT", target, "bytes=9-1,-", `"x", W/"y"`, "multipart/form-data; boundary=z")
		f.Add("DELETE", target, "", "", "")
		f.Add("POST", target, "", "", "")
	}
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, method, target, byteRange, tags, contentType string) {
		if method == "" || strings.HasPrefix(target, "/v1/fs") || strings.ContainsAny(method, " \r\n\x00") || strings.Contains(target, "Service/") || strings.Contains(target, "execute") {
			return
		}
		request := httptest.NewRequest("GET", "/", strings.NewReader("--z\r\nbody"))
		request.Method, request.RequestURI = method, target
		_, request.URL.RawQuery, _ = strings.Cut(target, "?")
		for name, value := range map[string]string{"Range": byteRange, "If-Match": tags, "If-None-Match": tags, "Content-Type": contentType} {
			request.Header.Set(name, value)
		}
		recorder := httptest.NewRecorder()
		w.server.ServeHTTP(recorder, request)
		if recorder.Code < 100 || recorder.Code > 599 || strings.Contains(recorder.Body.String(), "secret contents") {
			t.Fatalf("%s %q: %d %q", method, target, recorder.Code, recorder.Body)
		}
		top := filepath.Dir(w.root)
		names, _ := os.ReadDir(top)
		if text, _ := os.ReadFile(top + "/secret"); len(names) != 2 || string(text) != "secret" {
			t.Fatalf("%s %q changed what is outside: %v", method, target, names)
		}
	})
}
