package daemon

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"

	"agent-sandbox.dev/native/internal/files"
	"agent-sandbox.dev/native/internal/watch"
	sandboxv1 "agent-sandbox.dev/sdk/protocol/agentsandbox/v1"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Bounds of one page or one search.
const (
	foundDefault = 1000
	foundMax     = 10_000
)

// fileService is agentsandbox.v1.FileService.
type fileService struct{ space *files.Space }

var failureCodes = map[files.Class]connect.Code{
	files.Internal: connect.CodeInternal, files.Invalid: connect.CodeInvalidArgument, files.Denied: connect.CodePermissionDenied, files.NotFound: connect.CodeNotFound,
	files.Conflict: connect.CodeAlreadyExists, files.Precondition: connect.CodeFailedPrecondition, files.Exhausted: connect.CodeResourceExhausted,
}

// fileFailure turns an error of the files package into the error that a client gets.
func fileFailure(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, files.ErrNotEmpty) || errors.Is(err, files.ErrRootRemoval) {
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	failure := files.Explain(err)
	return connect.NewError(failureCodes[failure.Class], errors.New(failure.Text))
}

func bounded(asked uint32) int {
	if asked == 0 {
		return foundDefault
	}
	return int(min(asked, foundMax))
}

// onPath is a request about one path.
type onPath interface {
	GetPath() string
	GetRawPath() []byte
}

// asked is the path that a request names: its bytes where it gives them, else its text.
func asked(request onPath) string {
	return rawOr(request.GetRawPath(), request.GetPath())
}

func rawOr(raw []byte, text string) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

// shown makes a path fit for a message: text, and the bytes themselves where the text cannot say them.
func shown(name string) (text string, raw []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return printable(name), []byte(name)
}

// printable replaces what is not UTF-8.
func printable(name string) string {
	return strings.ToValidUTF8(name, "\uFFFD")
}

func describeFile(info files.Info) *sandboxv1.FileInfo {
	kind := sandboxv1.FileType_FILE_TYPE_OTHER
	switch {
	case info.IsRegular():
		kind = sandboxv1.FileType_FILE_TYPE_FILE
	case info.IsDirectory():
		kind = sandboxv1.FileType_FILE_TYPE_DIRECTORY
	case info.IsLink():
		kind = sandboxv1.FileType_FILE_TYPE_SYMLINK
	}
	text, raw := shown(info.Path)
	return &sandboxv1.FileInfo{
		Name: printable(info.Name), Path: text, RawPath: raw, Type: kind, SizeBytes: uint64(info.Stat.Size), Mode: info.Mode(), Uid: info.Stat.Uid, Gid: info.Stat.Gid,
		ModifiedAt: timestamppb.New(info.ModifiedAt()), LinkTarget: printable(info.LinkTarget), Etag: info.ETag(),
	}
}

func describeFiles(infos []files.Info) []*sandboxv1.FileInfo {
	described := make([]*sandboxv1.FileInfo, len(infos))
	for i, info := range infos {
		described[i] = describeFile(info)
	}
	return described
}

// Stat describes a file.
func (s *fileService) Stat(_ context.Context, request *sandboxv1.StatRequest) (*sandboxv1.StatResponse, error) {
	info, err := s.space.Stat(asked(request), !request.GetNoFollow())
	if err != nil {
		return nil, fileFailure(err)
	}
	return &sandboxv1.StatResponse{File: describeFile(info)}, nil
}

// List lists a directory in pages; the token is the last path of the page before, percent-encoded.
func (s *fileService) List(_ context.Context, request *sandboxv1.ListFilesRequest) (*sandboxv1.ListFilesResponse, error) {
	after, err := url.PathUnescape(request.GetPageToken())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("page_token is not one that this service gave"))
	}
	found, next, err := s.space.List(asked(request), int(max(request.GetDepth(), 1)), bounded(request.GetPageSize()), after)
	if err != nil {
		return nil, fileFailure(err)
	}
	return &sandboxv1.ListFilesResponse{Files: describeFiles(found), NextPageToken: url.PathEscape(next)}, nil
}

// MakeDir makes a directory.
func (s *fileService) MakeDir(_ context.Context, request *sandboxv1.MakeDirRequest) (*sandboxv1.MakeDirResponse, error) {
	mode := request.GetMode()
	if mode == 0 {
		mode = 0o755
	}
	info, err := s.space.MakeDir(asked(request), mode&0o7777, request.GetParents())
	if err != nil {
		return nil, fileFailure(err)
	}
	return &sandboxv1.MakeDirResponse{File: describeFile(info)}, nil
}

// Move renames.
func (s *fileService) Move(_ context.Context, request *sandboxv1.MoveRequest) (*sandboxv1.MoveResponse, error) {
	info, err := s.space.Move(rawOr(request.GetRawFrom(), request.GetFrom()), rawOr(request.GetRawTo(), request.GetTo()), request.GetOverwrite())
	if err != nil {
		return nil, fileFailure(err)
	}
	return &sandboxv1.MoveResponse{File: describeFile(info)}, nil
}

// Copy copies.
func (s *fileService) Copy(_ context.Context, request *sandboxv1.CopyRequest) (*sandboxv1.CopyResponse, error) {
	options := files.CopyOptions{Overwrite: request.GetOverwrite(), Recursive: request.GetRecursive()}
	copied, err := s.space.Copy(rawOr(request.GetRawFrom(), request.GetFrom()), rawOr(request.GetRawTo(), request.GetTo()), options)
	if err != nil {
		return nil, fileFailure(err)
	}
	return &sandboxv1.CopyResponse{File: describeFile(copied.Info), FilesCopied: copied.Files, BytesCopied: copied.Bytes}, nil
}

// Remove deletes.
func (s *fileService) Remove(_ context.Context, request *sandboxv1.RemoveRequest) (*sandboxv1.RemoveResponse, error) {
	err := s.space.Remove(asked(request), request.GetRecursive())
	if err != nil && (!request.GetMissingOk() || files.Explain(err).Class != files.NotFound) {
		return nil, fileFailure(err)
	}
	return &sandboxv1.RemoveResponse{}, nil
}

// SetAttributes changes mode and owner.
func (s *fileService) SetAttributes(_ context.Context, request *sandboxv1.SetAttributesRequest) (*sandboxv1.SetAttributesResponse, error) {
	info, err := s.space.SetAttributes(asked(request), files.Attributes{Mode: request.Mode, Uid: request.Uid, Gid: request.Gid})
	if err != nil {
		return nil, fileFailure(err)
	}
	return &sandboxv1.SetAttributesResponse{File: describeFile(info)}, nil
}

// Glob finds paths.
func (s *fileService) Glob(ctx context.Context, request *sandboxv1.GlobRequest) (*sandboxv1.GlobResponse, error) {
	found, truncated, err := s.space.Glob(ctx, asked(request), request.GetPattern(), bounded(request.GetLimit()))
	if err != nil {
		return nil, fileFailure(err)
	}
	return &sandboxv1.GlobResponse{Files: describeFiles(found), Truncated: truncated}, nil
}

// Search finds lines.
func (s *fileService) Search(ctx context.Context, request *sandboxv1.SearchRequest, stream *connect.ServerStream[sandboxv1.SearchResponse]) error {
	options := files.SearchOptions{
		Pattern: request.GetPattern(), IgnoreCase: request.GetIgnoreCase(), Literal: request.GetLiteral(),
		Include: request.GetInclude(), Exclude: request.GetExclude(), Limit: bounded(request.GetLimit()),
	}
	summary, err := s.space.Search(ctx, asked(request), options, func(match files.Match) error {
		text, raw := shown(match.Path)
		found := &sandboxv1.SearchMatch{Path: text, RawPath: raw, Line: match.Line, Column: uint32(match.Column), Text: match.Text}
		return stream.Send(&sandboxv1.SearchResponse{Event: &sandboxv1.SearchResponse_Match{Match: found}})
	})
	if err != nil {
		return fileFailure(err)
	}
	return stream.Send(&sandboxv1.SearchResponse{Event: &sandboxv1.SearchResponse_Summary{Summary: &sandboxv1.SearchSummary{
		FilesSearched: summary.Searched, FilesSkipped: summary.Skipped, Matches: summary.Matches, Truncated: summary.Truncated,
	}}})
}

// Checksum digests a file.
func (s *fileService) Checksum(ctx context.Context, request *sandboxv1.ChecksumRequest) (*sandboxv1.ChecksumResponse, error) {
	digest, algorithm, size, err := s.space.Checksum(ctx, asked(request), request.GetAlgorithm())
	if err != nil {
		return nil, fileFailure(err)
	}
	return &sandboxv1.ChecksumResponse{Digest: digest, Algorithm: algorithm, SizeBytes: uint64(size)}, nil
}

var watchTypes = map[watch.Type]sandboxv1.WatchEventType{
	watch.Create: sandboxv1.WatchEventType_WATCH_EVENT_TYPE_CREATE, watch.Write: sandboxv1.WatchEventType_WATCH_EVENT_TYPE_WRITE,
	watch.Remove: sandboxv1.WatchEventType_WATCH_EVENT_TYPE_REMOVE, watch.Rename: sandboxv1.WatchEventType_WATCH_EVENT_TYPE_RENAME,
	watch.Attributes: sandboxv1.WatchEventType_WATCH_EVENT_TYPE_ATTRIBUTES, watch.Overflow: sandboxv1.WatchEventType_WATCH_EVENT_TYPE_OVERFLOW,
}

// Watch streams changes, beginning with a `ready` event.
func (s *fileService) Watch(ctx context.Context, request *sandboxv1.WatchRequest, stream *connect.ServerStream[sandboxv1.WatchEvent]) error {
	w, err := watch.Open(s.space.Root, asked(request), request.GetRecursive())
	if err != nil {
		return fileFailure(err)
	}
	defer w.Close()
	if err := stream.Send(&sandboxv1.WatchEvent{Type: sandboxv1.WatchEventType_WATCH_EVENT_TYPE_READY}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-w.Events():
			if !ok {
				return connect.NewError(connect.CodeAborted, w.Err())
			}
			if err := stream.Send(describeEvent(event)); err != nil {
				return err
			}
		}
	}
}

func describeEvent(event watch.Event) *sandboxv1.WatchEvent {
	text, raw := shown(event.Path)
	oldText, oldRaw := shown(event.OldPath)
	return &sandboxv1.WatchEvent{
		Type: watchTypes[event.Type], Path: text, RawPath: raw, OldPath: oldText, RawOldPath: oldRaw, Directory: event.Directory,
	}
}
