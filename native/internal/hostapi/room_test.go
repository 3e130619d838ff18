package hostapi

import (
	"context"
	"testing"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

func TestVerbsThatTakeRoomStopAtTheFloor(t *testing.T) {
	inst, err := instance.New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		floor int64
		runs  bool
	}{{"no floor", 0, true}, {"a floor that is met", 1, true}, {"a floor above what any disk has", 1 << 62, false}} {
		ran := false
		verb := inRoom(&Host{Instance: inst, diskFloorBytes: c.floor}, func(context.Context, empty) (empty, error) {
			ran = true
			return empty{}, nil
		})
		_, err := verb(t.Context(), empty{})
		if ran != c.runs || hosterr.Is(err, hosterr.NoSpace) == c.runs {
			t.Errorf("%s: ran %v, %v", c.name, ran, err)
		}
	}
}
