package ociruntime

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// filesPerSandboxMax bounds the machine's files that one sandbox holds open. A file that a guest opens on its disk is two of them (measured), one that
// it has in /tmp or /dev/shm, a pipe or a socket is none.
const filesPerSandboxMax = 65_536

// tableShare is the part of the machine's table of open files, fs.file-max, that one sandbox may fill.
const tableShare = 16

// filesPerSandboxMin is enough for any sandbox to start, also on a machine with a small table.
const filesPerSandboxMin = 4_096

func filesPerSandbox(tableSize uint64) uint64 {
	return min(filesPerSandboxMax, max(filesPerSandboxMin, tableSize/tableShare))
}

// BoundOpenFiles lowers how many files this process, and with it every sandbox that it starts, may hold open. Without it a sandbox may hold as many as
// the process that started the engine, which is half a million where systemd's default is the limit.
func BoundOpenFiles() error {
	text, err := os.ReadFile("/proc/sys/fs/file-max")
	if err != nil {
		return err
	}
	size, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return errors.Join(errors.New("fs.file-max"), err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	bound := min(filesPerSandbox(size), limit.Max)
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: bound, Max: bound})
}
