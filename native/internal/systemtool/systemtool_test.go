package systemtool

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func writeProgram(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$1 $LD_LIBRARY_PATH\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheMachinesOwnProgramGoesBeforeTheCarriedOne(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	system, carried := t.TempDir(), t.TempDir()
	own := writeProgram(t, system, "nft")
	writeProgram(t, carried, "nft")
	cmd, err := commandIn(context.Background(), []string{system}, carried, []string{"nft", "list"})
	if err != nil || cmd.Path != own || cmd.Env != nil {
		t.Fatalf("got %v with %v, %v", cmd, cmd.Env, err)
	}
}

// PATH may name directories that users write to, and the helper is root.
func TestAReleaseRunsNothingFromThePath(t *testing.T) {
	users, carried := t.TempDir(), t.TempDir()
	t.Setenv("PATH", users)
	planted := writeProgram(t, users, "nft")
	writeProgram(t, users, "e2fsck")
	own := writeProgram(t, carried, "nft")
	if cmd, err := commandIn(context.Background(), nil, carried, []string{"nft"}); err != nil || cmd.Path != own {
		t.Errorf("got %v, %v", cmd, err)
	}
	if cmd, err := commandIn(context.Background(), nil, carried, []string{"e2fsck"}); err == nil {
		t.Errorf("a release started %s", cmd.Path)
	}
	if cmd, err := commandIn(context.Background(), nil, "", []string{"nft"}); err != nil || cmd.Path != planted {
		t.Errorf("in a checkout: got %v, %v", cmd, err)
	}
}

func TestACarriedProgramFindsItsLibraries(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	carried := t.TempDir()
	writeProgram(t, carried, "nft")
	cmd, err := commandIn(context.Background(), nil, carried, []string{"nft", "list"})
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.Output()
	if want := "list " + filepath.Join(carried, "lib"); err != nil || strings.TrimSpace(string(output)) != want {
		t.Fatalf("got %q, %v; want %q", output, err, want)
	}
}

func TestAMissingProgramNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	for _, name := range []string{"nft", "resize2fs"} {
		_, err := commandIn(context.Background(), nil, t.TempDir(), []string{name})
		if err == nil || !slices.Contains(strings.Fields(err.Error()), packages[name]) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
