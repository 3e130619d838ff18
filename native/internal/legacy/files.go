package legacy

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strings"

	"agent-sandbox.dev/native/internal/files"
)

// entry is a file as the legacy clients read it.
type entry struct {
	Name    string  `json:"name"`
	Size    int64   `json:"size"`
	Type    string  `json:"type"`
	ModTime float64 `json:"mod_time"`
}

const denied = "Access denied"

func (l *Runtime) list(w http.ResponseWriter, _ *http.Request, name string) {
	space, err := l.space()
	if err != nil {
		writeMessage(w, http.StatusInternalServerError, "List files failed: "+err.Error())
		return
	}
	listed, err := space.Entries(relative(name))
	switch {
	case isDenied(err):
		writeMessage(w, http.StatusForbidden, denied)
		return
	case err != nil && files.Explain(err).Class == files.Denied:
		writeMessage(w, http.StatusForbidden, "List files failed: "+files.Explain(err).Text)
		return
	case err != nil:
		writeMessage(w, http.StatusNotFound, "Path is not a directory")
		return
	}
	entries := make([]entry, 0, len(listed))
	for _, info := range listed {
		if info.IsLink() {
			// A link that leads nowhere, or outside, is left out.
			name := info.Name
			if info, err = space.Stat(info.Path, true); err != nil {
				continue
			}
			info.Name = name
		}
		kind := "file"
		if info.IsDirectory() {
			kind = "directory"
		}
		modified := float64(info.Stat.Mtim.Sec) + float64(info.Stat.Mtim.Nsec)/1e9
		entries = append(entries, entry{Name: info.Name, Size: info.Stat.Size, Type: kind, ModTime: modified})
	}
	writeJSON(w, http.StatusOK, entries)
}

func (l *Runtime) exists(w http.ResponseWriter, _ *http.Request, name string) {
	space, err := l.space()
	if err == nil {
		_, err = space.Stat(relative(name), true)
	}
	if isDenied(err) {
		writeMessage(w, http.StatusForbidden, denied)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Path   string `json:"path"`
		Exists bool   `json:"exists"`
	}{name, err == nil})
}

func (l *Runtime) download(w http.ResponseWriter, r *http.Request, name string) {
	file, info, err := l.open(name)
	if isDenied(err) {
		writeMessage(w, http.StatusForbidden, denied)
		return
	}
	if err != nil {
		writeMessage(w, http.StatusNotFound, "File not found")
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", disposition(name))
	w.Header().Set("ETag", info.ETag())
	http.ServeContent(w, r, "", info.ModifiedAt(), file)
}

func (l *Runtime) open(name string) (*os.File, files.Info, error) {
	space, err := l.space()
	if err != nil {
		return nil, files.Info{}, err
	}
	file, info, err := space.Open(relative(name))
	if err == nil && info.IsDirectory() {
		file.Close()
		return nil, info, files.ErrIsDirectory
	}
	return file, info, err
}

// disposition names the file as it was asked for.
func disposition(name string) string {
	escaped := strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
	if escaped == name {
		return `attachment; filename="` + name + `"`
	}
	return "attachment; filename*=utf-8''" + escaped
}

func (l *Runtime) upload(w http.ResponseWriter, r *http.Request, _ string) {
	part, filename, err := uploadedPart(r.Header.Get("Content-Type"), r.Body)
	if err != nil {
		writeInvalid(w, invalidField{Type: "missing", Location: []any{"body", "file"}, Message: "Field required"})
		return
	}
	space, err := l.space()
	if err == nil {
		_, err = space.Write(relative(filename), part, files.WriteOptions{})
	}
	if isDenied(err) {
		writeMessage(w, http.StatusForbidden, denied)
		return
	}
	if err != nil {
		// Statuses that older clients would send the whole upload again for are left to failures that may pass.
		status := http.StatusBadRequest
		if files.Explain(err).Class == files.Internal {
			status = http.StatusInternalServerError
		}
		writeMessage(w, status, "File upload failed: "+files.Explain(err).Text)
		return
	}
	// What follows the file in the body is read, so that the connection can be used again.
	io.Copy(io.Discard, io.LimitReader(r.Body, requestBytesMax))
	writeMessage(w, http.StatusOK, "File '"+filename+"' uploaded successfully.")
}

var errNoFile = errors.New("no file part")

// uploadedPart finds the part named "file"; its file name is kept whole, directories included.
func uploadedPart(contentType string, body io.Reader) (io.Reader, string, error) {
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/form-data" || parameters["boundary"] == "" {
		return nil, "", errNoFile
	}
	reader := multipart.NewReader(body, parameters["boundary"])
	for {
		part, err := reader.NextRawPart()
		if err != nil {
			return nil, "", errNoFile
		}
		header := part.Header.Get("Content-Disposition")
		if parameter(header, "name") != "file" {
			continue
		}
		if filename := parameter(header, "filename"); filename != "" {
			return part, filename, nil
		}
		return nil, "", errNoFile
	}
}

// parameter reads one parameter of a Content-Disposition header, also with raw UTF-8, which clients send.
func parameter(header, name string) string {
	if _, parameters, err := mime.ParseMediaType(header); err == nil {
		return parameters[name]
	}
	for _, piece := range strings.Split(header, ";") {
		key, value, ok := strings.Cut(strings.TrimSpace(piece), "=")
		if ok && strings.EqualFold(key, name) {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}
