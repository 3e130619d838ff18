package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const page = 4096

// takeMemory takes Number bytes and touches every page of them.
func takeMemory(a Attempt) Outcome {
	memory, err := unix.Mmap(-1, 0, int(a.Number), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return refused(err)
	}
	defer unix.Munmap(memory)
	for at := 0; at < len(memory); at += page {
		memory[at] = 1
	}
	return through("holds %d bytes", len(memory))
}

// fillDisk writes Number bytes below Path, and removes them again.
func fillDisk(a Attempt) Outcome {
	file, err := os.CreateTemp(a.Path, "sandbox-probe-")
	if err != nil {
		return refused(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	block := make([]byte, 1<<20)
	for written := int64(0); written < a.Number; written += int64(len(block)) {
		if _, err := file.Write(block); err != nil {
			return refused(fmt.Errorf("after %d bytes: %w", written, err))
		}
	}
	if err := file.Sync(); err != nil {
		return refused(err)
	}
	return through("wrote %d bytes to %s", a.Number, filepath.Dir(file.Name()))
}

// forkTime bounds forkMany: a sandbox at its limit may answer each further attempt slowly.
const forkTime = 20 * time.Second

// forkMany holds Number processes at once, each of which only waits.
func forkMany(a Attempt) Outcome {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var held []int
	defer func() {
		for _, pid := range held {
			unix.Kill(pid, unix.SIGKILL)
			unix.Wait4(pid, nil, 0, nil)
		}
	}()
	for end := time.Now().Add(forkTime); int64(len(held)) < a.Number; {
		if time.Now().After(end) {
			return Outcome{Unknown: true, Detail: fmt.Sprintf("only %d processes after %v", len(held), forkTime)}
		}
		pid, err := waitingChild()
		if err != nil {
			return refused(fmt.Errorf("after %d processes: %w", len(held), err))
		}
		held = append(held, pid)
	}
	return through("holds %d processes", len(held))
}

// waitingChild forks a process that waits for ever and dies with the thread that made it. It runs nothing of the Go runtime, whose threads it has not
// got: only system calls, on a stack that must not grow.
//
//go:nosplit
//go:norace
func waitingChild() (int, error) {
	pid, _, err := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if err != 0 {
		return 0, err
	}
	if pid != 0 {
		return int(pid), nil
	}
	unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	for {
		unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
