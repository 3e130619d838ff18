package daemon

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"regexp"
	"strconv"

	"agent-sandbox.dev/native/internal/files"
)

var modePattern = regexp.MustCompile(`^0[0-7]{3}$`)

// mode reads the query's mode; nil when there is none.
func (f *fileRequest) mode() (*uint32, bool) {
	text := f.query.Get("mode")
	if text == "" {
		return nil, true
	}
	if !modePattern.MatchString(text) {
		f.invalid("mode %q must match ^0[0-7]{3}$", text)
		return nil, false
	}
	value, _ := strconv.ParseUint(text, 8, 32)
	mode := uint32(value)
	return &mode, true
}

func (f *fileRequest) put() {
	options, ok := f.writeOptions()
	if !ok {
		return
	}
	body := &trackedBody{Reader: f.r.Body}
	switch kind := f.query.Get("extract"); kind {
	case "":
		f.write(body, options)
	case "tar":
		f.unpack(body)
	default:
		f.invalid("extract %q must be tar", kind)
	}
}

func (f *fileRequest) writeOptions() (options files.WriteOptions, ok bool) {
	if options.Mode, ok = f.mode(); !ok {
		return options, false
	}
	if options.Append, ok = f.flag("append"); !ok {
		return options, false
	}
	if options.Sync, ok = f.flag("sync"); !ok {
		return options, false
	}
	if text := f.query.Get("offset"); text != "" {
		offset, err := strconv.ParseInt(text, 10, 64)
		if err != nil || offset < 0 || options.Append {
			f.invalid("offset %q must be a number of bytes, and not with append", text)
			return options, false
		}
		options.Offset = &offset
	}
	options.IfMatch, options.IfNoneMatch = f.r.Header.Get("If-Match"), f.r.Header.Get("If-None-Match")
	return options, true
}

func (f *fileRequest) write(body *trackedBody, options files.WriteOptions) {
	content, err := filePart(f.r.Header.Get("Content-Type"), body)
	if err != nil {
		f.invalid("%s", err)
		return
	}
	info, err := f.space.Write(f.name, content, options)
	if err != nil {
		f.failWrite(body, err)
		return
	}
	f.w.Header().Set("ETag", info.ETag())
	f.w.WriteHeader(http.StatusNoContent)
}

func (f *fileRequest) unpack(body *trackedBody) {
	preserve, ok := f.flag("preserve_owner")
	if !ok {
		return
	}
	if _, err := f.space.UnpackArchive(f.name, body, files.UnpackOptions{PreserveOwner: preserve}); err != nil {
		f.failWrite(body, err)
		return
	}
	f.w.WriteHeader(http.StatusNoContent)
}

// failWrite blames the client for a body that ended early, and the file system for the rest.
func (f *fileRequest) failWrite(body *trackedBody, err error) {
	if body.err != nil {
		f.invalid("request body ended early")
		return
	}
	f.fail(err)
}

// trackedBody remembers that reading the body failed.
type trackedBody struct {
	io.Reader
	err error
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

var errNoFilePart = errors.New(`multipart body is missing the required "file" part`)

// filePart is the body itself, or the part named "file" of a multipart one.
func filePart(contentType string, body io.Reader) (io.Reader, error) {
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/form-data" {
		return body, nil
	}
	if parameters["boundary"] == "" {
		return nil, errors.New("invalid multipart body: no boundary")
	}
	reader := multipart.NewReader(body, parameters["boundary"])
	for {
		part, err := reader.NextPart()
		if err == io.EOF {
			return nil, errNoFilePart
		}
		if err != nil {
			return nil, errors.New("invalid multipart body: " + err.Error())
		}
		if part.FormName() == "file" {
			return part, nil
		}
	}
}

// post carries out op=mkdir, op=move&to=... and op=copy&to=...
func (f *fileRequest) post() {
	var err error
	switch operation := f.query.Get("op"); operation {
	case "mkdir":
		err = f.makeDir()
	case "move", "copy":
		err = f.transfer(operation)
	default:
		f.invalid("op %q must be mkdir, move or copy", operation)
		return
	}
	if errors.Is(err, errAnswered) {
		return
	}
	if err != nil {
		f.fail(err)
		return
	}
	f.w.WriteHeader(http.StatusNoContent)
}

// errAnswered says that the client has been told already.
var errAnswered = errors.New("answered")

func (f *fileRequest) makeDir() error {
	mode, ok := f.mode()
	if !ok {
		return errAnswered
	}
	if mode == nil {
		usual := uint32(0o755)
		mode = &usual
	}
	parents := true
	if f.query.Has("parents") {
		if parents, ok = f.flag("parents"); !ok {
			return errAnswered
		}
	}
	_, err := f.space.MakeDir(f.name, *mode, parents)
	return err
}

func (f *fileRequest) transfer(operation string) error {
	to := f.query.Get("to")
	overwrite, ok := f.flag("overwrite")
	if !ok {
		return errAnswered
	}
	recursive, ok := f.flag("recursive")
	if !ok {
		return errAnswered
	}
	if to == "" {
		f.invalid("to is required")
		return errAnswered
	}
	var err error
	if operation == "move" {
		_, err = f.space.Move(f.name, to, overwrite)
	} else {
		_, err = f.space.Copy(f.name, to, files.CopyOptions{Overwrite: overwrite, Recursive: recursive})
	}
	return err
}
