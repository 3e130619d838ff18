package hostapi

import (
	"context"
	"fmt"

	"agent-sandbox.dev/native/internal/hosterr"
	"golang.org/x/sys/unix"
)

// inRoom lets a verb that takes room on the disk run only while there is more of it than the floor. Images are sparse: what sandboxes were
// promised may add up to more than the disk has, and what is left below the floor is the engine's and the machine's.
func inRoom[R, A any](h *Host, run func(context.Context, R) (A, error)) func(context.Context, R) (A, error) {
	return func(ctx context.Context, r R) (A, error) {
		if err := h.checkRoom(); err != nil {
			var none A
			return none, err
		}
		return run(ctx, r)
	}
}

func (h *Host) checkRoom() error {
	if h.diskFloorBytes == 0 {
		return nil
	}
	return h.checkRoomFor(0)
}

// checkRoomFor refuses so many more bytes where less than the floor would be left, or where they do not fit at all.
func (h *Host) checkRoomFor(bytes int64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(h.Instance.DataDir, &disk); err != nil {
		return fmt.Errorf("statfs %s: %w", h.Instance.DataDir, err)
	}
	free := int64(disk.Bavail) * disk.Bsize
	if free-bytes >= h.diskFloorBytes {
		return nil
	}
	if bytes > 0 {
		return hosterr.New(hosterr.NoSpace, "the disk of %s has %d bytes free, too few for %d more beside the %d that are kept free: make room, or change --system-reserved-disk",
			h.Instance.DataDir, free, bytes, h.diskFloorBytes)
	}
	return hosterr.New(hosterr.NoSpace, "the disk of %s has %d bytes free, less than the %d that are kept free: make room, or change --system-reserved-disk",
		h.Instance.DataDir, free, h.diskFloorBytes)
}
