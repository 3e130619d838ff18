package ociruntime

import (
	"math"
	"testing"
)

func TestASandboxHasAPartOfTheMachinesTableOfFiles(t *testing.T) {
	for size, want := range map[uint64]uint64{20_000: 4_096, 200_000: 12_500, 2_465_780: 65_536, math.MaxInt64: 65_536} {
		if got := filesPerSandbox(size); got != want {
			t.Errorf("of a table of %d files a sandbox has %d, not %d", size, got, want)
		}
	}
}
