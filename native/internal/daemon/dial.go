package daemon

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// dialTimeout bounds a connection to the sandbox's own loopback, which is refused or accepted at once.
const dialTimeout = 5 * time.Second

// serveDial turns the connection into one to a port of the sandbox's loopback address, which nothing outside can dial: what listens there only is reached by port-forward through here.
func (s *Server) serveDial(w http.ResponseWriter, r *http.Request, text string) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		writeError(w, http.StatusBadRequest, "INVALID_ARGUMENT", "the path ends with a port")
		return
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok || !strings.EqualFold(r.Header.Get("Upgrade"), "tcp") {
		w.Header().Set("Upgrade", "tcp")
		writeError(w, http.StatusUpgradeRequired, "FAILED_PRECONDITION", "the connection must be upgraded to tcp over HTTP/1.1")
		return
	}
	target, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", text), dialTimeout)
	if err != nil {
		target, err = net.DialTimeout("tcp", net.JoinHostPort("::1", text), dialTimeout)
	}
	if err != nil {
		writeError(w, http.StatusBadGateway, "UNAVAILABLE", "nothing accepts connections on port "+text)
		return
	}
	defer target.Close()
	client, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"); err != nil {
		return
	}
	// A daemon that shuts down does not wait for connections that carry another protocol than its own.
	defer context.AfterFunc(r.Context(), func() { target.Close(); client.Close() })()
	// Only what is buffered is read through the server: its reader takes the client's half close for the end of everything.
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		io.Copy(target, io.MultiReader(bytes.NewReader(early), client))
		closeWrite(target)
	}()
	io.Copy(client, target)
	closeWrite(client)
	<-finished
}

// closeWrite tells the other side that no more comes, and leaves the way back open.
func closeWrite(connection net.Conn) {
	if half, ok := connection.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
