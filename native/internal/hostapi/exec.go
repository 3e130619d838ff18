package hostapi

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/ociruntime"
	"golang.org/x/sys/unix"
)

// Frames of an exec's stream: one byte of kind, four of length (big endian), then the content. exec-frame.ts is the other end.
const (
	frameStdin  = 0
	frameStdout = 1
	frameStderr = 2
	frameResize = 3
	frameExit   = 4
	// frameStdinEnd closes the process's standard input.
	frameStdinEnd = 5

	frameBytesMax = 1 << 20
	copyBytes     = 32 << 10

	execProtocol = "agent-sandbox-exec"
	// How long output may take to arrive after the process has ended: a grandchild may hold the pipe for ever.
	drainAfterExit = 500 * time.Millisecond
)

// lookForClientEvery is how long a process whose input is full may outlive its client.
const lookForClientEvery = 500 * time.Millisecond

const execStartMax = 30 * time.Second

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request, body []byte) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), execProtocol) {
		writeError(w, hosterr.New(hosterr.InvalidArgument, "exec needs Upgrade: %s", execProtocol))
		return
	}
	var request ociruntime.ExecRequest
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		writeError(w, hosterr.New(hosterr.InvalidArgument, "request: %v", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), execStartMax)
	defer cancel()
	process, err := s.host.Engine.StartExec(ctx, request)
	if err != nil {
		s.log.Info("verb failed", "verb", "exec", "code", string(hosterr.Of(err)), "error", err.Error())
		writeError(w, err)
		return
	}
	defer process.Close()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	if _, err := conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + execProtocol + "\r\n\r\n")); err != nil {
		return
	}
	streamExec(conn, buffered.Reader, process)
}

// streamExec copies both ways until the process has ended or the client has gone; the caller kills what is left.
func streamExec(conn net.Conn, input *bufio.Reader, process *ociruntime.Exec) {
	out := &frameWriter{conn: conn}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		readFrames(conn, input, process)
	}()
	var output sync.WaitGroup
	output.Go(func() { copyFrames(out, frameStdout, process.Stdout) })
	if process.Stderr != nil {
		output.Go(func() { copyFrames(out, frameStderr, process.Stderr) })
	}
	select {
	case <-process.Ended():
	case <-gone:
		return
	}
	drained := make(chan struct{})
	go func() { output.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(drainAfterExit):
	case <-gone:
	}
	text, err := json.Marshal(map[string]int{"exitCode": process.ExitCode()})
	if err == nil {
		_ = out.write(frameExit, text)
	}
}

type frameWriter struct {
	mu   sync.Mutex
	conn net.Conn
}

func (f *frameWriter) write(kind byte, content []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	header := make([]byte, 5, 5+len(content))
	header[0] = kind
	binary.BigEndian.PutUint32(header[1:], uint32(len(content)))
	_, err := f.conn.Write(append(header, content...))
	return err
}

// copyFrames ends on the stream's end; a terminal whose last holder has gone answers EIO, which is its end.
func copyFrames(out *frameWriter, kind byte, from *os.File) {
	buffer := make([]byte, copyBytes)
	for {
		n, err := from.Read(buffer)
		if n > 0 && out.write(kind, buffer[:n]) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// readFrames feeds the process until the client closes or breaks the protocol.
func readFrames(conn net.Conn, input *bufio.Reader, process *ociruntime.Exec) {
	header := make([]byte, 5)
	for {
		if _, err := io.ReadFull(input, header); err != nil {
			return
		}
		size := binary.BigEndian.Uint32(header[1:])
		if size > frameBytesMax {
			return
		}
		content := make([]byte, size)
		if _, err := io.ReadFull(input, content); err != nil {
			return
		}
		switch header[0] {
		case frameStdin:
			if process.Stdin != nil && !feed(conn, process.Stdin, content) {
				return
			}
		case frameStdinEnd:
			if process.Stdin != nil && process.Stdin != process.Stdout {
				_ = process.Stdin.Close()
			}
		case frameResize:
			var size ociruntime.TerminalSize
			if json.Unmarshal(content, &size) != nil {
				return
			}
			if process.Stdin == process.Stdout {
				_ = process.Resize(size)
			}
		default:
			return
		}
	}
}

// feed writes to a process's input; false: the client has gone. While the process reads nothing, neither is the client's socket read, so that its
// end is asked for. A process that does not read any more is no reason to end: its output still counts.
func feed(conn net.Conn, input *os.File, content []byte) bool {
	for len(content) > 0 {
		_ = input.SetWriteDeadline(time.Now().Add(lookForClientEvery))
		n, err := input.Write(content)
		content = content[n:]
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return true
		}
		if hasGone(conn) {
			return false
		}
	}
	return true
}

// hasGone asks the kernel whether the other end of a socket is closed, whatever of it is still unread.
func hasGone(conn net.Conn) bool {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	if err := raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	}); err != nil {
		return true
	}
	return gone
}
