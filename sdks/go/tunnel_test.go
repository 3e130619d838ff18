package sandbox

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"agent-sandbox.dev/sdk/errorcode"
)

// forwardingServer is an API server that knows one sandbox and forwards connections to its Pod to the server at target.
func forwardingServer(t *testing.T, state string, target string) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	forwards := &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/pods/box-pod/portforward") {
			writeJSON(w, http.StatusOK, map[string]any{
				"metadata": map[string]any{"name": "box", "namespace": "default", "uid": "uid-1", "annotations": map[string]any{podNameAnnotation: "box-pod"}},
				"spec":     map[string]any{"operatingMode": "Suspended", "wakePolicy": "Never"},
				"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": state, "reason": "SandboxSuspended"}}},
			})
			return
		}
		forwards.Add(1)
		if r.URL.Query().Get("ports") != "49900" || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		relay(t, w, r, target)
	}))
	t.Cleanup(server.Close)
	return server, forwards
}

// relay speaks the server's side of v4.channel.k8s.io for one port; every message comes in two frames with a ping between them.
func relay(t *testing.T, w http.ResponseWriter, r *http.Request, target string) {
	place, _ := url.Parse(target)
	pod, err := net.Dial("tcp", place.Host)
	if err != nil {
		t.Error(err)
		return
	}
	defer pod.Close()
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + acceptSuffix))
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n"+
		"Sec-WebSocket-Accept: "+base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
	port := binary.LittleEndian.AppendUint16(nil, 49900)
	conn.Write(serverFrame(0x82, append([]byte{channelData}, port...)))
	conn.Write(serverFrame(0x82, append([]byte{channelError}, port...)))
	go func() {
		chunk := make([]byte, 100_000)
		for {
			n, err := pod.Read(chunk)
			if err != nil {
				// Closing it whole would take back what the client has not read yet.
				conn.(*net.TCPConn).CloseWrite()
				return
			}
			conn.Write(serverFrame(0x02, []byte{channelData}))
			conn.Write(serverFrame(0x89, []byte("are you there")))
			conn.Write(serverFrame(0x80, chunk[:n]))
		}
	}()
	copyToPod(pod, buffered.Reader)
}

func serverFrame(first byte, payload []byte) []byte {
	frame := []byte{first}
	switch {
	case len(payload) < 126:
		frame = append(frame, byte(len(payload)))
	case len(payload) < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(len(payload)))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(len(payload)))
	}
	return append(frame, payload...)
}

// copyToPod unmasks what the client sends.
func copyToPod(pod io.Writer, from *bufio.Reader) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return
		}
		length := int(head[1] & 0x7f)
		if length == 126 {
			var long [2]byte
			io.ReadFull(from, long[:])
			length = int(binary.BigEndian.Uint16(long[:]))
		}
		body := make([]byte, 4+length)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		for i := range body[4:] {
			body[4+i] ^= body[i&3]
		}
		if head[0]&0x0f == frameBinary {
			pod.Write(body[5:])
		}
	}
}

// echo serves files: what is written is read again.
func echo(t *testing.T) *recorder {
	var kept []byte
	return serve(t, func(w http.ResponseWriter, r *http.Request, body []byte, _ int) {
		if r.Method == http.MethodPut {
			kept = body
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Write(kept)
	})
}

func boxBehind(api, router string) *Sandbox {
	engine := newEngine(&credentials{server: api, namespace: "default", token: "secret"}, router, false)
	return newSandbox(engine, &object{Metadata: metadata{Name: "box", Namespace: "default", UID: "uid-1"}})
}

func TestSandboxWithoutARouterIsReachedThroughTheAPIServer(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 50_000)
	for _, router := range []string{"", "http://127.0.0.1:1"} {
		api, forwards := forwardingServer(t, "True", echo(t).URL)
		box := boxBehind(api.URL, router)
		// A body that can be sent once only comes first: it must not be spent on a router that is not there.
		if err := box.Files().WriteFrom(t.Context(), "/f", io.MultiReader(bytes.NewReader(content)), WriteFileOptions{}); err != nil {
			t.Fatal(err)
		}
		read, err := box.Files().Read(t.Context(), "/f")
		if err != nil || !bytes.Equal(read, content) || forwards.Load() == 0 {
			t.Fatalf("router %q: %d bytes, %v, %d forwards", router, len(read), err, forwards.Load())
		}
	}
}

func TestHeldSandboxIsNotWokenThroughTheAPIServer(t *testing.T) {
	api, forwards := forwardingServer(t, "False", "")
	if _, err := boxBehind(api.URL, "").Files().Read(t.Context(), "/f"); CodeOf(err) != errorcode.SandboxHeld || forwards.Load() != 0 {
		t.Fatalf("got %v", err)
	}
}

func TestRouterThatAnsweredOnceIsNotLeft(t *testing.T) {
	router := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) { w.Write([]byte("x")) })
	api, forwards := forwardingServer(t, "True", router.URL)
	box := boxBehind(api.URL, router.URL)
	if _, err := box.Files().Read(t.Context(), "/f"); err != nil {
		t.Fatal(err)
	}
	router.Close()
	if _, err := box.Files().Read(t.Context(), "/f"); CodeOf(err) != errorcode.ConnectionLost || forwards.Load() != 0 {
		t.Fatalf("got %v, %d forwards", err, forwards.Load())
	}
}
