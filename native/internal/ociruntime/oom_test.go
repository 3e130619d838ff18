package ociruntime

import "testing"

func TestASandboxGoesBeforeTheEngineAndIsNeverLowered(t *testing.T) {
	for own, want := range map[int]int{-900: 500, 0: 500, 500: 500, 1000: 1000} {
		if got := oomScoreAdj(own, false); got != want {
			t.Errorf("with %d of its own, a sandbox has %d, not %d", own, got, want)
		}
	}
}

func TestASentryGoesBeforeItsGuestsWhereOneProcessIsKilled(t *testing.T) {
	for own, want := range map[int]int{-900: 1000, 0: 1000, 1000: 1000} {
		if got := oomScoreAdj(own, true); got != want {
			t.Errorf("with %d of its own, a sandbox has %d, not %d", own, got, want)
		}
	}
}
