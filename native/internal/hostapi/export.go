package hostapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/loopfs"
	"agent-sandbox.dev/native/internal/sparse"
)

// exportRequest names one image; what else lies in the helper's directory cannot be named.
type exportRequest struct {
	// Kind is `volume` or `writable`.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// PauseMaxMs is how long writers may wait.
	PauseMaxMs int64 `json:"pauseMaxMs"`
}

// pauseMaxMs bounds what may be asked for: beyond it callers of a sandbox have given up.
const pauseMaxMs = 10 * 60 * 1000

// exportChunkMax is how long the receiver may take for one piece; one that reads nothing must not keep a copy on the disk for ever.
const exportChunkMax = 10 * time.Minute

// serveExport answers with a copy of an image as it is at one moment. Root alone may ask: the node, whose sandboxes have it mounted, has no use for it.
func (s *Server) serveExport(w http.ResponseWriter, r *http.Request, uid int64, body []byte) {
	started := time.Now()
	// A helper that does not end is killed 8 seconds after SIGTERM; what is frozen by then stays so until the next one starts.
	ctx, cancel := untilStop(r.Context())
	defer cancel()
	snapshot, paused, err := s.takeSnapshot(ctx, uid, body)
	if err != nil {
		s.log.Info("verb failed", "verb", "exportImage", "code", string(hosterr.Of(err)), "error", err.Error())
		writeError(w, err)
		return
	}
	defer snapshot.Close()
	image, err := sparse.Open(snapshot)
	if err != nil {
		writeError(w, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(image.EncodedBytes(), 10))
	header.Set("Image-Size-Bytes", strconv.FormatInt(image.SizeBytes(), 10))
	header.Set("Paused-Ms", strconv.FormatFloat(float64(paused.Microseconds())/1000, 'f', 3, 64))
	_, err = image.WriteTo(pacedWriter{ctx: ctx, w: w, control: http.NewResponseController(w)})
	s.log.Info("verb", "verb", "exportImage", "durationMs", time.Since(started).Milliseconds(), "pausedMs", paused.Milliseconds(), "bytes", image.EncodedBytes(), "error", errorText(err))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// pacedWriter gives each piece a time of its own, until the context ends.
type pacedWriter struct {
	ctx     context.Context
	w       http.ResponseWriter
	control *http.ResponseController
}

func (p pacedWriter) Write(piece []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(exportChunkMax))
	return p.w.Write(piece)
}

func (s *Server) takeSnapshot(ctx context.Context, uid int64, body []byte) (*os.File, time.Duration, error) {
	if uid != 0 {
		return nil, 0, hosterr.New(hosterr.PermissionDenied, "exportImage is root's alone")
	}
	var request exportRequest
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return nil, 0, hosterr.New(hosterr.InvalidArgument, "request: %v", err)
	}
	if decoder.More() {
		return nil, 0, hosterr.New(hosterr.InvalidArgument, "request: more than one JSON value")
	}
	if err := instance.CheckID("id", request.ID); err != nil {
		return nil, 0, err
	}
	if request.PauseMaxMs < 1 || request.PauseMaxMs > pauseMaxMs {
		return nil, 0, hosterr.New(hosterr.InvalidArgument, "pauseMaxMs: %d is not within 1 to %d", request.PauseMaxMs, pauseMaxMs)
	}
	take := s.host.Volumes.Snapshot
	switch request.Kind {
	case "volume":
	case "writable":
		take = s.host.Rootfs.Snapshot
	default:
		return nil, 0, hosterr.New(hosterr.InvalidArgument, "kind: %q is neither volume nor writable", request.Kind)
	}
	if err := s.host.checkRoom(); err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, bulk)
	defer cancel()
	release, err := s.locks.lock(ctx, []string{request.Kind + "/" + request.ID})
	if err != nil {
		return nil, 0, err
	}
	defer release()
	bounds := loopfs.SnapshotBounds{PauseMax: time.Duration(request.PauseMaxMs) * time.Millisecond, Room: s.host.checkRoomFor}
	snapshot, paused, err := take(ctx, request.ID, bounds)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, hosterr.New(hosterr.NotFound, "there is no %s %s", request.Kind, request.ID)
	}
	return snapshot, paused, err
}
