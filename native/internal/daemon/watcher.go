package daemon

import (
	"context"

	"agent-sandbox.dev/native/internal/beneath"
	watcherv1 "agent-sandbox.dev/native/internal/gen/watcher/v1"
	"agent-sandbox.dev/native/internal/watch"
	"connectrpc.com/connect"
)

// publishedWatcher is watcher.v1.FileWatcherService.
type publishedWatcher struct{ root *beneath.Root }

var publishedTypes = map[watch.Type]watcherv1.FileEventType{
	watch.Create: watcherv1.FileEventType_FILE_EVENT_TYPE_CREATE, watch.Write: watcherv1.FileEventType_FILE_EVENT_TYPE_WRITE,
	watch.Remove: watcherv1.FileEventType_FILE_EVENT_TYPE_REMOVE, watch.Rename: watcherv1.FileEventType_FILE_EVENT_TYPE_RENAME,
	watch.Attributes: watcherv1.FileEventType_FILE_EVENT_TYPE_CHMOD,
}

// WatchDir streams changes; an ERROR event is the last one.
func (s *publishedWatcher) WatchDir(ctx context.Context, request *watcherv1.WatchDirRequest, stream *connect.ServerStream[watcherv1.FileEvent]) error {
	w, err := watch.Open(s.root, request.GetPath(), request.GetRecursive())
	if err != nil {
		return fileFailure(err)
	}
	defer w.Close()
	// Headers go out now, so that the client knows the watch stands.
	if err := stream.Send(nil); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-w.Events():
			if !ok {
				return s.end(stream, w.Err())
			}
			if event.Type == watch.Overflow {
				return stream.Send(&watcherv1.FileEvent{Type: watcherv1.FileEventType_FILE_EVENT_TYPE_ERROR, Error: "events were lost because the reader was slow; watch again"})
			}
			if err := stream.Send(s.describe(event)); err != nil {
				return err
			}
		}
	}
}

func (s *publishedWatcher) describe(event watch.Event) *watcherv1.FileEvent {
	described := &watcherv1.FileEvent{Type: publishedTypes[event.Type], Path: s.root.Relative(event.Path)[1:]}
	if event.OldPath != "" {
		described.OldPath = s.root.Relative(event.OldPath)[1:]
	}
	return described
}

func (s *publishedWatcher) end(stream *connect.ServerStream[watcherv1.FileEvent], err error) error {
	if err == nil {
		return nil
	}
	return stream.Send(&watcherv1.FileEvent{Type: watcherv1.FileEventType_FILE_EVENT_TYPE_ERROR, Error: err.Error()})
}
