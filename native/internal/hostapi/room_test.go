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

func TestACopyMustFitBesideTheFloor(t *testing.T) {
	inst, err := instance.New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		floor, bytes int64
		fits         bool
	}{
		{"a small one", 1, 1, true}, {"none, without a floor", 0, 0, true}, {"one above what any disk has", 1, 1 << 62, false},
		{"one above what any disk has, without a floor", 0, 1 << 62, false}, {"a small one below the floor", 1 << 62, 1, false},
	} {
		err := (&Host{Instance: inst, diskFloorBytes: c.floor}).checkRoomFor(c.bytes)
		if (err == nil) != c.fits || hosterr.Is(err, hosterr.NoSpace) == c.fits {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
