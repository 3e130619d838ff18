package daemon

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/files"
)

// serveFile answers /v1/files/<path> and /v1/fs/<path>; the path is percent-decoded once.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, space *files.Space, encoded string) {
	name, err := url.PathUnescape(encoded)
	if err != nil {
		writeError(w, http.StatusBadRequest, "INVALID_ARGUMENT", "path is not validly percent-encoded")
		return
	}
	request := &fileRequest{w: w, r: r, space: space, name: name, query: r.URL.Query()}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		request.get()
	case http.MethodPut:
		request.put()
	case http.MethodPost:
		request.post()
	case http.MethodDelete:
		request.delete()
	default:
		allowMethods(w, r, http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete)
	}
}

// fileRequest is one request about one path.
type fileRequest struct {
	w     http.ResponseWriter
	r     *http.Request
	space *files.Space
	name  string
	query url.Values
}

var failureStatus = map[files.Class]struct {
	status int
	code   string
}{
	files.Internal: {http.StatusInternalServerError, "INTERNAL"}, files.Invalid: {http.StatusBadRequest, "INVALID_ARGUMENT"},
	files.Denied: {http.StatusForbidden, "PERMISSION_DENIED"}, files.NotFound: {http.StatusNotFound, "NOT_FOUND"}, files.Conflict: {http.StatusConflict, "CONFLICT"},
	files.Precondition: {http.StatusPreconditionFailed, "FAILED_PRECONDITION"},
	// Not one of the statuses that published clients send again.
	files.Exhausted: {http.StatusInsufficientStorage, "RESOURCE_EXHAUSTED"},
}

func (f *fileRequest) fail(err error) {
	failure := files.Explain(err)
	answer := failureStatus[failure.Class]
	writeError(f.w, answer.status, answer.code, failure.Text)
}

func (f *fileRequest) invalid(format string, values ...any) {
	writeError(f.w, http.StatusBadRequest, "INVALID_ARGUMENT", fmt.Sprintf(format, values...))
}

// flag reads a boolean of the query; absent and empty are false.
func (f *fileRequest) flag(name string) (value, ok bool) {
	text := f.query.Get(name)
	if text == "" {
		return false, true
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		f.invalid("%s %q must be a boolean", name, text)
		return false, false
	}
	return value, true
}

func (f *fileRequest) get() {
	file, info, err := f.space.Open(f.name)
	if err != nil {
		f.fail(err)
		return
	}
	defer file.Close()
	switch format := f.query.Get("format"); format {
	case "":
	case "tar":
		f.pack(&info)
		return
	default:
		f.invalid("format %q must be tar", format)
		return
	}
	if info.IsDirectory() {
		f.list(file, &info)
		return
	}
	f.w.Header().Set("Content-Type", "application/octet-stream")
	f.w.Header().Set("ETag", info.ETag())
	f.w.Header().Set("X-File-Mode", fmt.Sprintf("%04o", info.Mode()))
	http.ServeContent(f.w, f.r, "", info.ModifiedAt(), file)
}

// pack streams an archive; what goes wrong on the way can only break the stream off.
func (f *fileRequest) pack(info *files.Info) {
	f.w.Header().Set("Content-Type", "application/x-tar")
	if f.r.Method == http.MethodHead {
		return
	}
	if err := f.space.PackArchive(f.r.Context(), f.name, f.w); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// listing is a directory as the published clients read it.
type listing struct {
	Path    string  `json:"path"`
	Entries []entry `json:"entries"`
}

type entry struct {
	Name       string `json:"name"`
	Size       int64  `json:"size"`
	Type       string `json:"type"`
	ModifiedAt string `json:"modified_at"`
	Mode       string `json:"mode"`
}

func (f *fileRequest) list(directory *os.File, info *files.Info) {
	recursive, ok := f.flag("recursive")
	if !ok {
		return
	}
	answer := listing{Path: f.name, Entries: []entry{}}
	if !strings.HasPrefix(answer.Path, "/") {
		answer.Path = "/" + answer.Path
	}
	add := func(_ *os.File, relative string, info *files.Info) (bool, error) {
		if one, ok := f.describe(relative, info); ok {
			answer.Entries = append(answer.Entries, one)
		}
		return recursive, f.r.Context().Err()
	}
	if err := files.WalkOpen(directory, info.Path, add); err != nil {
		f.fail(err)
		return
	}
	writeJSON(f.w, http.StatusOK, answer)
}

// describe makes an entry; a link is shown as what it leads to, and left out when that is nothing or outside.
func (f *fileRequest) describe(relative string, info *files.Info) (entry, bool) {
	shown := *info
	if info.IsLink() {
		target, err := f.space.Stat(info.Path, true)
		if err != nil {
			return entry{}, false
		}
		shown = target
	}
	kind := "file"
	if shown.IsDirectory() {
		kind = "directory"
	}
	return entry{
		Name: path.Clean(relative), Size: shown.Stat.Size, Type: kind,
		ModifiedAt: shown.ModifiedAt().Format(time.RFC3339), Mode: fmt.Sprintf("%04o", shown.Mode()&0o777),
	}, true
}

func (f *fileRequest) delete() {
	// A path that does not exist is reported before a bad query, as the reference does.
	if _, err := f.space.Stat(f.name, false); err != nil {
		f.fail(err)
		return
	}
	recursive, ok := f.flag("recursive")
	if !ok {
		return
	}
	if err := f.space.Remove(f.name, recursive); err != nil {
		f.fail(err)
		return
	}
	f.w.WriteHeader(http.StatusNoContent)
}
