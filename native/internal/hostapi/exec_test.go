package hostapi

import (
	"bufio"
	"encoding/binary"
	"net"
	"os"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/ociruntime"
	"golang.org/x/sys/unix"
)

// connections are the two ends of a Unix socket.
func connections(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	t.Cleanup(func() { _ = ends[0].Close(); _ = ends[1].Close() })
	return ends[0], ends[1]
}

func frame(kind byte, content []byte) []byte {
	header := make([]byte, 5, 5+len(content))
	header[0] = kind
	binary.BigEndian.PutUint32(header[1:], uint32(len(content)))
	return append(header, content...)
}

// A client that vanishes while the process reads none of its input is noticed, so that the process is ended.
func TestClientThatVanishesWhileInputIsFull(t *testing.T) {
	ours, theirs := connections(t)
	unread, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	output, silent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unread.Close(); _ = silent.Close() }()
	process := &ociruntime.Exec{Stdin: input, Stdout: output}
	returned := make(chan struct{})
	go func() {
		streamExec(ours, bufio.NewReader(ours), process)
		close(returned)
	}()
	// More than the pipe and the socket hold together: the write stops, and then the client goes.
	_ = theirs.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	for range 64 {
		if _, err := theirs.Write(frame(frameStdin, make([]byte, frameBytesMax))); err != nil {
			break
		}
	}
	select {
	case <-returned:
		t.Fatal("the stream ended under a client that is there")
	default:
	}
	_ = theirs.Close()
	select {
	case <-returned:
	case <-time.After(5 * time.Second):
		t.Fatal("the stream goes on without a client")
	}
	_ = input.Close()
	_ = output.Close()
}
