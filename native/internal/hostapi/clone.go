package hostapi

import (
	"context"
	"errors"
	"os"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
	"agent-sandbox.dev/native/internal/loopfs"
)

// lockKinds are the kinds of images that can be cloned, with the names of their locks.
var lockKinds = map[string]string{"writable": "writable", "volume": "volume", "empty-dir": "empty"}

func cloneKeys(r cloneRequest) []string {
	kind := lockKinds[r.Kind]
	return []string{kind + "/" + r.From, kind + "/" + r.To}
}

// cloned is how a clone was made.
type cloned struct {
	PausedMs  float64 `json:"pausedMs"`
	Copy      string  `json:"copy"`
	UsedBytes int64   `json:"usedBytes"`
}

func (h *Host) cloneImage(ctx context.Context, r cloneRequest) (cloned, error) {
	if err := errors.Join(instance.CheckID("from", r.From), instance.CheckID("to", r.To)); err != nil {
		return cloned{}, err
	}
	if r.From == r.To {
		return cloned{}, hosterr.New(hosterr.InvalidArgument, "to: %s is the image itself", r.To)
	}
	if r.PauseMaxMs < 1 || r.PauseMaxMs > pauseMaxMs {
		return cloned{}, hosterr.New(hosterr.InvalidArgument, "pauseMaxMs: %d is not within 1 to %d", r.PauseMaxMs, pauseMaxMs)
	}
	clone := h.Rootfs.Clone
	switch r.Kind {
	case "writable":
	case "volume":
		clone = h.Volumes.Clone
	case "empty-dir":
		clone = h.Volumes.CloneEmptyDir
	default:
		return cloned{}, hosterr.New(hosterr.InvalidArgument, "kind: %q is neither writable, volume nor empty-dir", r.Kind)
	}
	bounds := loopfs.SnapshotBounds{PauseMax: time.Duration(r.PauseMaxMs) * time.Millisecond, Room: h.checkRoomFor}
	made, err := clone(ctx, r.From, r.To, bounds)
	if errors.Is(err, os.ErrNotExist) {
		err = hosterr.New(hosterr.NotFound, "there is no %s %s", r.Kind, r.From)
	}
	how := "copy"
	if made.Reflink {
		how = "reflink"
	}
	return cloned{PausedMs: float64(made.Paused.Microseconds()) / 1000, Copy: how, UsedBytes: made.UsedBytes}, err
}
