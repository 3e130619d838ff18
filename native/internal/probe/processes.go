package probe

import (
	"bytes"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// findProcess looks for a process whose command line or program contains Name.
func findProcess(a Attempt) Outcome {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return refused(err)
	}
	for _, entry := range entries {
		line, _ := os.ReadFile(entry + "/cmdline")
		program, _ := os.Readlink(entry + "/exe")
		if bytes.Contains(line, []byte(a.Name)) || bytes.Contains([]byte(program), []byte(a.Name)) {
			return through("%s is %s", entry, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	return refusedBecause("not among %d processes", len(entries))
}

// sharesNamespace compares a namespace of this process with Value, which a process of the machine has; "own" is its own.
func sharesNamespace(a Attempt) Outcome {
	own, err := os.Readlink("/proc/self/ns/" + a.Name)
	if err != nil {
		return refused(err)
	}
	if a.Value == own || a.Value == "own" {
		return through("is in %s", own)
	}
	return refusedBecause("is in %s", own)
}

// findSegment finds the System V memory of key Number, which a process outside made.
func findSegment(a Attempt) Outcome {
	id, err := unix.SysvShmGet(int(a.Number), 0, 0)
	if err != nil {
		return refused(err)
	}
	return through("found segment %d", id)
}

const segmentBytes = 4096

func makeSegment(key int) (int, error) {
	return unix.SysvShmGet(key, segmentBytes, unix.IPC_CREAT|0o666)
}

func removeSegment(id int) { unix.SysvShmCtl(id, unix.IPC_RMID, nil) }
