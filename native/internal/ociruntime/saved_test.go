package ociruntime

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAllStopped(t *testing.T) {
	const stopped = "goroutine 7 [sync.Cond.Wait]:\ngvisor.dev/gvisor/pkg/sentry/kernel.(*Task).doStop(0x1)\ngvisor.dev/gvisor/pkg/sentry/kernel.(*Task).run(0x1)"
	const running = "goroutine 8 [select]:\ngvisor.dev/gvisor/pkg/sentry/kernel.(*Task).block(0x2)\ngvisor.dev/gvisor/pkg/sentry/kernel.(*Task).run(0x2)"
	const other = "goroutine 9 [IO wait]:\ngvisor.dev/gvisor/pkg/urpc.(*Server).handleOne(0x3)"
	for _, one := range []struct {
		name, stacks string
		want         bool
	}{
		{"none", other, false},
		{"empty", "", false},
		{"stopped", other + "\n\n" + stopped + "\n\n" + stopped, true},
		{"one runs", stopped + "\n\n" + running, false},
	} {
		if got := allStopped(one.stacks); got != one.want {
			t.Errorf("%s: %v", one.name, got)
		}
	}
}

func TestSumsTellPieces(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pages")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = pieceBytes + 5
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	before, err := sumsOf(f, size)
	if err != nil || len(before) != 2 {
		t.Fatalf("%v %v", before, err)
	}
	if _, err := f.WriteAt([]byte{1}, size-1); err != nil {
		t.Fatal(err)
	}
	after, err := sumsOf(f, size)
	if err != nil || after[0] != before[0] || after[1] == before[1] {
		t.Fatalf("%v is not %v but for its end: %v", after, before, err)
	}
	if _, err := sumsOf(f, size+1); err == nil {
		t.Error("a file that is shorter than it should be has a checksum")
	}
}

func TestManifestCheck(t *testing.T) {
	whole := func() *manifest {
		m := &manifest{ID: "state", RuntimeVersion: "v1+0123456789ab", Containers: []manifestContainer{{ID: "root", Root: true}}}
		for _, name := range stateFiles {
			m.Files = append(m.Files, manifestFile{Name: name, SizeBytes: 1, Sums: []uint32{0}})
		}
		return m
	}
	if err := whole().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*manifest){
		"no container":       func(m *manifest) { m.Containers = nil },
		"a container's path": func(m *manifest) { m.Containers[0].ID = "../root" },
		"no build":           func(m *manifest) { m.RuntimeVersion = "" },
		"a build's path":     func(m *manifest) { m.RuntimeVersion = "../v1+0123456789ab" },
		"a file too few":     func(m *manifest) { m.Files = m.Files[1:] },
		"files in disorder":  func(m *manifest) { slices.Reverse(m.Files) },
		"an empty file":      func(m *manifest) { m.Files[0].SizeBytes = 0 },
		"a checksum too few": func(m *manifest) { m.Files[2].SizeBytes = pieceBytes + 1 },
		"another id":         func(m *manifest) { m.ID = "state.partial" },
	} {
		m := whole()
		spoil(m)
		if m.Check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
