package ociruntime

import (
	"os"
	"path/filepath"
	"testing"

	"agent-sandbox.dev/native/internal/confine"
	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/instance"
)

// A data directory that the operator named through a link is the engine's by its own path too, which is how a host path is looked up.
func TestHostPathIntoALinkedDataDirectoryIsDenied(t *testing.T) {
	base := t.TempDir()
	if err := os.MkdirAll(filepath.Join(base, "real/data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	inst, err := instance.New(filepath.Join(base, "link/data"), filepath.Join(base, "link/run"))
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{inst: inst, config: Config{HostPaths: []string{base}}}
	for tree, dir := range map[**confine.Tree]string{&e.tree: inst.Host(), &e.run: inst.RunDir} {
		if *tree, err = confine.OpenTree(dir); err != nil {
			t.Fatal(err)
		}
		defer (*tree).Close()
	}
	for _, name := range []string{"link/data/host", "real/data/host", "real/data", "real", "real/run", "."} {
		if _, err := e.openHostPath(filepath.Join(base, name)); !hosterr.Is(err, hosterr.HostPathDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Mkdir(filepath.Join(base, "allowed"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := e.openHostPath(filepath.Join(base, "allowed"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
