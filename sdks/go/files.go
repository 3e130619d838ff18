package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"agent-sandbox.dev/sdk/errorcode"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
)

// Files are those of a sandbox. Paths are absolute, or relative to the sandbox's working directory; they may hold bytes
// that are not UTF-8. The methods of fs.FS take unrooted names below "/".
type Files struct {
	box *Sandbox
}

// Files gives access to the sandbox's files.
func (b *Sandbox) Files() *Files { return &Files{b} }

// FileInfo is a file, as the sandbox describes it.
type FileInfo struct {
	Name string
	// Path is absolute. As names of Linux do, it may hold bytes that are not UTF-8.
	Path string
	// Type is "file", "directory", "symlink" or "other".
	Type       string
	SizeBytes  int64
	Mode       fs.FileMode
	UID, GID   int
	ModifiedAt time.Time
	LinkTarget string
	// ETag changes whenever the contents may have.
	ETag string
}

var fileTypes = map[sandboxv1.FileType]string{
	sandboxv1.FileType_FILE_TYPE_FILE: "file", sandboxv1.FileType_FILE_TYPE_DIRECTORY: "directory", sandboxv1.FileType_FILE_TYPE_SYMLINK: "symlink",
}

// textOf is a path as text; rawOf has those that are not UTF-8, which protobuf's text cannot hold.
func textOf(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return ""
}

func rawOf(path string) []byte {
	if utf8.ValidString(path) {
		return nil
	}
	return []byte(path)
}

// pathOf is the path of an answer, with its bytes where they are not UTF-8.
func pathOf(text string, raw []byte) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

func fileInfoOf(wire *sandboxv1.FileInfo) *FileInfo {
	name, path := wire.GetName(), pathOf(wire.GetPath(), wire.GetRawPath())
	if len(wire.GetRawPath()) > 0 {
		name = path[strings.LastIndexByte(path, '/')+1:]
	}
	return &FileInfo{
		Name: name, Path: path, Type: firstOf(fileTypes[wire.GetType()], "other"), SizeBytes: int64(wire.GetSizeBytes()),
		Mode: fs.FileMode(wire.GetMode() & 0o777), UID: int(wire.GetUid()), GID: int(wire.GetGid()), ModifiedAt: wire.GetModifiedAt().AsTime(),
		LinkTarget: wire.GetLinkTarget(), ETag: wire.GetEtag(),
	}
}

// fsURL has the path as one percent-encoded word, so that no dot or slash of a name is ever read as part of the URL.
func (f *Files) fsURL(path string, query url.Values) string {
	word := url.QueryEscape(path)
	word = strings.NewReplacer("+", "%20", ".", "%2E").Replace(word)
	target := f.box.engine.baseURL() + "/v1/fs/" + word
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return target
}

// fileRequest is what a request to a path has besides its method.
type fileRequest struct {
	query  url.Values
	body   io.Reader
	header map[string]string
}

func (f *Files) send(ctx context.Context, method, path string, sent fileRequest) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, f.fsURL(path, sent.query), sent.body)
	if err != nil {
		return nil, wrapError(errorcode.InvalidArgument, err, "%s", path)
	}
	for name, value := range sent.header {
		request.Header.Set(name, value)
	}
	response, err := f.box.plane.client().Do(request)
	if err != nil {
		return nil, callError(ctx, err)
	}
	if response.StatusCode < 300 {
		response.Body = &typedBody{ctx, response.Body}
		return response, nil
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(io.LimitReader(response.Body, refusalBytesMax))
	var told struct{ Message string }
	if json.Unmarshal(content, &told) != nil || told.Message == "" {
		told.Message = fmt.Sprintf("the sandbox answered %d", response.StatusCode)
	}
	return nil, &Error{Code: codeOfStatus(response.StatusCode), Message: path + ": " + told.Message, RequestID: response.Header.Get("X-Request-Id")}
}

// typedBody is a body whose failures are errors of this SDK: a connection that breaks inside it says so by a code.
type typedBody struct {
	ctx context.Context
	io.ReadCloser
}

// Read reads; the end stays io.EOF.
func (b *typedBody) Read(into []byte) (int, error) {
	read, err := b.ReadCloser.Read(into)
	if err == nil || err == io.EOF {
		return read, err
	}
	return read, callError(b.ctx, err)
}

// ReadStream returns a file's contents as they come; close it.
func (f *Files) ReadStream(ctx context.Context, path string) (io.ReadCloser, error) {
	response, err := f.send(ctx, http.MethodGet, path, fileRequest{})
	if err != nil {
		return nil, err
	}
	// A directory is answered with a listing; a file never has this type.
	if strings.HasPrefix(response.Header.Get("Content-Type"), jsonType) {
		response.Body.Close()
		return nil, newError(errorcode.IsADirectory, "%s is a directory", path)
	}
	return response.Body, nil
}

// Read returns a file's contents.
func (f *Files) Read(ctx context.Context, path string) ([]byte, error) {
	reader, err := f.ReadStream(ctx, path)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	content, err := io.ReadAll(reader)
	return content, callError(ctx, err)
}

// WriteFileOptions change how a file is written.
type WriteFileOptions struct {
	// Mode has the permission bits of a file that is made; zero means 0644.
	Mode   fs.FileMode
	Append bool
	// Sync waits until it is on disk.
	Sync bool
	// IfMatch writes only when the file has this etag; else `conflict`.
	IfMatch string
}

// Write writes a file in one step: readers see the old contents or the new. Missing directories are made.
func (f *Files) Write(ctx context.Context, path string, content []byte) error {
	return f.WriteFrom(ctx, path, bytes.NewReader(content), WriteFileOptions{})
}

// WriteFrom is Write from a stream.
func (f *Files) WriteFrom(ctx context.Context, path string, content io.Reader, options WriteFileOptions) error {
	query := url.Values{}
	if options.Mode != 0 {
		query.Set("mode", fmt.Sprintf("0%03o", options.Mode.Perm()))
	}
	if options.Append {
		query.Set("append", "true")
	}
	if options.Sync {
		query.Set("sync", "true")
	}
	header := map[string]string{"Content-Type": "application/octet-stream"}
	if options.IfMatch != "" {
		header["If-Match"] = options.IfMatch
	}
	response, err := f.send(ctx, http.MethodPut, path, fileRequest{query, content, header})
	if err != nil {
		// The daemon's answer does not say which argument was wrong.
		if CodeOf(err) == errorcode.InvalidArgument {
			if info, statErr := f.Info(ctx, path); statErr == nil && info.Type == "directory" {
				return newError(errorcode.IsADirectory, "%s is a directory", path)
			}
		}
		return err
	}
	return response.Body.Close()
}

// Info describes what a path names, following links.
func (f *Files) Info(ctx context.Context, path string) (*FileInfo, error) {
	answer, err := f.box.fileCalls.Stat(ctx, &sandboxv1.StatRequest{Path: textOf(path), RawPath: rawOf(path)})
	if err != nil {
		return nil, fileError(ctx, err)
	}
	return fileInfoOf(answer.GetFile()), nil
}

// Exists says whether something is at that path.
func (f *Files) Exists(ctx context.Context, path string) (bool, error) {
	_, err := f.Info(ctx, path)
	if CodeOf(err) == errorcode.NotFound {
		return false, nil
	}
	return err == nil, err
}

// List yields the entries of a directory, by name; a depth above 1 descends.
func (f *Files) List(ctx context.Context, path string, depth int) iter.Seq2[*FileInfo, error] {
	return func(yield func(*FileInfo, error) bool) {
		request := &sandboxv1.ListFilesRequest{Path: textOf(path), RawPath: rawOf(path), Depth: uint32(depth)}
		for {
			page, err := f.box.fileCalls.List(ctx, request)
			if err != nil {
				yield(nil, fileError(ctx, err))
				return
			}
			for _, wire := range page.GetFiles() {
				if !yield(fileInfoOf(wire), nil) {
					return
				}
			}
			if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
				return
			}
		}
	}
}

// MkdirAll makes a directory and its parents; one that is there already is fine.
func (f *Files) MkdirAll(ctx context.Context, path string, mode fs.FileMode) (*FileInfo, error) {
	answer, err := f.box.fileCalls.MakeDir(ctx, &sandboxv1.MakeDirRequest{Path: textOf(path), RawPath: rawOf(path), Mode: uint32(mode.Perm()), Parents: true})
	if err != nil {
		return nil, fileError(ctx, err)
	}
	return fileInfoOf(answer.GetFile()), nil
}

// Mkdir makes one directory; `file-exists` where something is there.
func (f *Files) Mkdir(ctx context.Context, path string, mode fs.FileMode) (*FileInfo, error) {
	answer, err := f.box.fileCalls.MakeDir(ctx, &sandboxv1.MakeDirRequest{Path: textOf(path), RawPath: rawOf(path), Mode: uint32(mode.Perm())})
	if err != nil {
		return nil, fileError(ctx, err)
	}
	return fileInfoOf(answer.GetFile()), nil
}

// Move moves; `file-exists` where something is at the target, unless overwrite.
func (f *Files) Move(ctx context.Context, from, to string, overwrite bool) (*FileInfo, error) {
	answer, err := f.box.fileCalls.Move(ctx, &sandboxv1.MoveRequest{From: textOf(from), RawFrom: rawOf(from), To: textOf(to), RawTo: rawOf(to), Overwrite: overwrite})
	if err != nil {
		return nil, fileError(ctx, err)
	}
	return fileInfoOf(answer.GetFile()), nil
}

// Copy copies a file or, with everything in it, a directory.
func (f *Files) Copy(ctx context.Context, from, to string, overwrite bool) (*FileInfo, error) {
	answer, err := f.box.fileCalls.Copy(ctx, &sandboxv1.CopyRequest{From: textOf(from), RawFrom: rawOf(from), To: textOf(to), RawTo: rawOf(to), Overwrite: overwrite, Recursive: true})
	if err != nil {
		return nil, fileError(ctx, err)
	}
	return fileInfoOf(answer.GetFile()), nil
}

// Delete removes a file or an empty directory; a link is removed, not followed.
func (f *Files) Delete(ctx context.Context, path string) error {
	_, err := f.box.fileCalls.Remove(ctx, &sandboxv1.RemoveRequest{Path: textOf(path), RawPath: rawOf(path)})
	return fileError(ctx, err)
}

// DeleteAll removes whatever is there; nothing is fine.
func (f *Files) DeleteAll(ctx context.Context, path string) error {
	_, err := f.box.fileCalls.Remove(ctx, &sandboxv1.RemoveRequest{Path: textOf(path), RawPath: rawOf(path), Recursive: true, MissingOk: true})
	return fileError(ctx, err)
}

// FileAttributes are what SetAttributes changes; nil leaves one as it is.
type FileAttributes struct {
	Mode     *fs.FileMode
	UID, GID *int
}

// SetAttributes changes mode and owner.
func (f *Files) SetAttributes(ctx context.Context, path string, attributes FileAttributes) (*FileInfo, error) {
	request := &sandboxv1.SetAttributesRequest{Path: textOf(path), RawPath: rawOf(path)}
	if attributes.Mode != nil {
		request.Mode = new(uint32(attributes.Mode.Perm()))
	}
	if attributes.UID != nil {
		request.Uid = new(uint32(*attributes.UID))
	}
	if attributes.GID != nil {
		request.Gid = new(uint32(*attributes.GID))
	}
	answer, err := f.box.fileCalls.SetAttributes(ctx, request)
	if err != nil {
		return nil, fileError(ctx, err)
	}
	return fileInfoOf(answer.GetFile()), nil
}

// SearchOptions change how Search reads its pattern.
type SearchOptions struct {
	// Literal: the pattern is plain text.
	Literal    bool
	IgnoreCase bool
}

// SearchMatch is a line that Search found.
type SearchMatch struct {
	Path string
	// Line and Column, in bytes, are counted from 1.
	Line, Column int
	// Text is the line without its end, cut at 4 KiB.
	Text string
}

// Search finds lines that match a regular expression (RE2), in text files below a directory.
func (f *Files) Search(ctx context.Context, directory, pattern string, options SearchOptions) ([]SearchMatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.box.fileCalls.Search(ctx, &sandboxv1.SearchRequest{
		Path: textOf(directory), RawPath: rawOf(directory), Pattern: pattern, Literal: options.Literal, IgnoreCase: options.IgnoreCase,
	})
	if err != nil {
		return nil, fileError(ctx, err)
	}
	found := []SearchMatch{}
	for stream.Receive() {
		if match := stream.Msg().GetMatch(); match != nil {
			found = append(found, SearchMatch{pathOf(match.GetPath(), match.GetRawPath()), int(match.GetLine()), int(match.GetColumn()), match.GetText()})
		}
	}
	return found, fileError(ctx, stream.Err())
}

// Glob finds paths that match *, ?, [a-z], {a,b} and **, below a directory.
func (f *Files) Glob(ctx context.Context, directory, pattern string) ([]*FileInfo, error) {
	answer, err := f.box.fileCalls.Glob(ctx, &sandboxv1.GlobRequest{Pattern: pattern, Path: textOf(directory), RawPath: rawOf(directory)})
	if err != nil {
		return nil, fileError(ctx, err)
	}
	found := make([]*FileInfo, 0, len(answer.GetFiles()))
	for _, wire := range answer.GetFiles() {
		found = append(found, fileInfoOf(wire))
	}
	return found, nil
}

// Checksum is a file's sha256 digest, computed in the sandbox.
func (f *Files) Checksum(ctx context.Context, path string) (string, error) {
	answer, err := f.box.fileCalls.Checksum(ctx, &sandboxv1.ChecksumRequest{Path: textOf(path), RawPath: rawOf(path)})
	return answer.GetDigest(), fileError(ctx, err)
}

// FileEvent is a change below a watched directory.
type FileEvent struct {
	// Type is "create", "write", "remove", "rename", "attributes", or "overflow": events were lost, look again.
	Type          string
	Path, OldPath string
	IsDirectory   bool
}

// Watch yields changes below a directory. It returns when the watch is in place: every change after that is reported.
func (f *Files) Watch(ctx context.Context, path string, recursive bool) (iter.Seq2[FileEvent, error], error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := f.box.fileCalls.Watch(ctx, &sandboxv1.WatchRequest{Path: textOf(path), RawPath: rawOf(path), Recursive: recursive})
	// The first event says that the watch is in place.
	if err == nil && !stream.Receive() {
		err = stream.Err()
	}
	if err != nil {
		defer cancel()
		return nil, fileError(ctx, err)
	}
	return func(yield func(FileEvent, error) bool) {
		defer cancel()
		for stream.Receive() {
			wire := stream.Msg()
			kind := strings.ToLower(strings.TrimPrefix(wire.GetType().String(), "WATCH_EVENT_TYPE_"))
			if !yield(FileEvent{kind, pathOf(wire.GetPath(), wire.GetRawPath()), pathOf(wire.GetOldPath(), wire.GetRawOldPath()), wire.GetDirectory()}, nil) {
				return
			}
		}
		if err := stream.Err(); err != nil {
			yield(FileEvent{}, fileError(ctx, err))
		}
	}, nil
}
