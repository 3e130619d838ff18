package vfork_test

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"agent-sandbox.dev/native/internal/vfork"
)

func status(t *testing.T, pid int) syscall.WaitStatus {
	t.Helper()
	var status syscall.WaitStatus
	for {
		switch _, err := syscall.Wait4(pid, &status, 0, nil); err {
		case nil:
			return status
		case syscall.EINTR:
		default:
			t.Fatal(err)
		}
	}
}

func TestStartCarriesOutOneCallAfterTheOther(t *testing.T) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(ends[0])
	words := [][]byte{[]byte("one "), []byte("two")}
	var calls []vfork.Call
	for _, word := range words {
		calls = append(calls, vfork.Call{Number: syscall.SYS_WRITE, Args: [4]uintptr{uintptr(ends[1]), uintptr(unsafe.Pointer(&word[0])), uintptr(len(word))}})
	}
	calls = append(calls, vfork.Call{Number: syscall.SYS_EXIT_GROUP, Args: [4]uintptr{42}})
	pid, failure, errno := vfork.Start(calls)
	runtime.KeepAlive(words)
	if errno != 0 || failure.Errno != 0 || pid <= 0 {
		t.Fatalf("pid %d, failure %+v, errno %d", pid, failure, errno)
	}
	if status := status(t, pid); status.ExitStatus() != 42 {
		t.Errorf("status %x", status)
	}
	buffer := make([]byte, 100)
	if n, err := syscall.Read(ends[0], buffer); err != nil || string(buffer[:n]) != "one two" {
		t.Errorf("%q %v", buffer[:max(n, 0)], err)
	}
	syscall.Close(ends[1])
}

func TestStartStopsAtTheFirstFailure(t *testing.T) {
	calls := []vfork.Call{
		{Number: syscall.SYS_GETPID},
		{Number: syscall.SYS_CLOSE, Args: [4]uintptr{^uintptr(0)}},
		{Number: syscall.SYS_EXIT_GROUP, Args: [4]uintptr{42}},
	}
	pid, failure, errno := vfork.Start(calls)
	if errno != 0 || failure.Index != 1 || syscall.Errno(failure.Errno) != syscall.EBADF {
		t.Fatalf("failure %+v, errno %d", failure, errno)
	}
	if status := status(t, pid); status.ExitStatus() != 127 {
		t.Errorf("status %x", status)
	}
}

func TestStartEndsAChildWhoseCallsHaveAllReturned(t *testing.T) {
	pid, failure, errno := vfork.Start([]vfork.Call{{Number: syscall.SYS_GETPID}})
	if errno != 0 || failure.Errno != 0 {
		t.Fatalf("failure %+v, errno %d", failure, errno)
	}
	if status := status(t, pid); status.ExitStatus() != 127 {
		t.Errorf("status %x", status)
	}
}
