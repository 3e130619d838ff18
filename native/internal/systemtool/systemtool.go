// Package systemtool finds the few programs of the distribution that the helper starts: nft, and those of e2fsprogs.
package systemtool

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"agent-sandbox.dev/native/internal/hosterr"
)

// packages are what an administrator installs to have the programs.
var packages = map[string]string{"nft": "nftables", "mkfs.ext4": "e2fsprogs", "e2fsck": "e2fsprogs", "resize2fs": "e2fsprogs"}

// systemDirs are an administrator's, which PATH need not be: it may be a user's own.
var systemDirs = []string{"/usr/sbin", "/sbin", "/usr/bin"}

// Command prepares a run of one of the programs: the machine's own where it has it, else the one that came with this release. In a checkout,
// with which none came, PATH is looked at last.
func Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	return commandIn(ctx, systemDirs, carriedDir(), append([]string{name}, args...))
}

// carriedDir is where a release has programs that a bare machine lacks, beside this one; empty in a checkout, which has no such folder.
func carriedDir() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Join(filepath.Dir(self), "tools")
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return dir
}

func commandIn(ctx context.Context, dirs []string, carried string, argv []string) (*exec.Cmd, error) {
	name, args := argv[0], argv[1:]
	for _, dir := range dirs {
		if path := filepath.Join(dir, name); isProgram(path) {
			return exec.CommandContext(ctx, path, args...), nil
		}
	}
	if path := filepath.Join(carried, name); carried != "" && isProgram(path) {
		cmd := exec.CommandContext(ctx, path, args...)
		// Its libraries came with it; the C library is the machine's.
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(carried, "lib"))
		return cmd, nil
	}
	if path, err := exec.LookPath(name); err == nil && carried == "" {
		return exec.CommandContext(ctx, path, args...), nil
	}
	return nil, hosterr.New(hosterr.RuntimeMissing, "%s not found: install %s", name, packages[name])
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
