package sandbox

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"agent-sandbox.dev/sdk/errorcode"
)

// tunnel reaches a sandbox without a router: every connection goes to its Pod through the API server's port-forward, over the WebSocket
// channels that every Kubernetes version serves.
type tunnel struct {
	box       *Sandbox
	transport *http.Transport
}

func newTunnel(box *Sandbox) *tunnel {
	t := &tunnel{box: box}
	t.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return t.dial(ctx, address) },
		// Every request finds the Pod anew: a tunnel to one that is gone may never say so.
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
	return t
}

// send sends one request to a port of the sandbox.
func (t *tunnel) send(request *http.Request, port int) (*http.Response, error) {
	addressed := request.Clone(request.Context())
	addressed.URL.Scheme, addressed.URL.Host, addressed.Host = "http", net.JoinHostPort("localhost", strconv.Itoa(port)), ""
	return t.transport.RoundTrip(addressed)
}

// pod finds the sandbox's Pod and wakes a sandbox that sleeps, as the router does for the traffic it sees.
func (t *tunnel) pod(ctx context.Context) (string, error) {
	found, err := t.box.object(ctx)
	if err != nil {
		return "", err
	}
	state := phaseOf(found)
	if state.IsHeld {
		return "", newError(errorcode.SandboxHeld, "sandbox %s/%s is suspended and traffic does not wake it", t.box.Namespace, t.box.Name)
	}
	if state.Phase != "ready" {
		if state.WakesOnTraffic {
			active := map[string]any{"agent-sandbox.dev/last-activity-at": time.Now().UTC().Format("2006-01-02T15:04:05.000Z")}
			if found, err = t.box.patch(ctx, map[string]any{"metadata": map[string]any{"uid": t.box.UID, "annotations": active}}); err != nil {
				return "", err
			}
		}
		if found, err = t.box.kube.waitReady(ctx, found, readyTimeoutDefault); err != nil {
			return "", err
		}
	}
	return firstOf(found.Metadata.Annotations[podNameAnnotation], found.Metadata.Name), nil
}

func (t *tunnel) dial(ctx context.Context, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	pod, err := t.pod(ctx)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(t.box.engine.credentials.server)
	if err != nil {
		return nil, wrapError(errorcode.InvalidArgument, err, "the API server's address")
	}
	plain, err := dialServer(ctx, server, t.box.engine.credentials)
	if err != nil {
		return nil, wrapError(errorcode.Unavailable, err, "cannot reach the API server at %s", t.box.engine.credentials.server)
	}
	// Older kubelets read `port`; the documented parameter is `ports`.
	target := *server
	target.Path, target.RawQuery = server.Path+pods.path(t.box.Namespace, pod)+"/portforward", url.Values{"ports": {port}, "port": {port}}.Encode()
	// A caller who gives up must not wait for an answer that does not come.
	stop := context.AfterFunc(ctx, func() { plain.Close() })
	forwarded, err := t.upgrade(ctx, plain, &target)
	if !stop() || err != nil {
		plain.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return forwarded, nil
}

func dialServer(ctx context.Context, server *url.URL, known *credentials) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	if server.Scheme == "http" {
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort(server.Hostname(), firstOf(server.Port(), "80")))
	}
	config := known.tlsConfig()
	// WebSockets begin on HTTP/1.1.
	config.NextProtos, config.ServerName = []string{"http/1.1"}, server.Hostname()
	secure := tls.Dialer{NetDialer: &dialer, Config: config}
	return secure.DialContext(ctx, "tcp", net.JoinHostPort(server.Hostname(), firstOf(server.Port(), "443")))
}

const (
	channelProtocol = "v4.channel.k8s.io"
	acceptSuffix    = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

func (t *tunnel) upgrade(ctx context.Context, plain net.Conn, target *url.URL) (*forwardConn, error) {
	var random [16]byte
	rand.Read(random[:])
	key := base64.StdEncoding.EncodeToString(random[:])
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, wrapError(errorcode.InvalidArgument, err, "the API server's address")
	}
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": key, "Sec-Websocket-Protocol": channelProtocol,
	} {
		request.Header.Set(name, value)
	}
	t.box.engine.authorize(request)
	if err := request.Write(plain); err != nil {
		return nil, wrapError(errorcode.ConnectionLost, err, "the connection to the API server broke")
	}
	reader := bufio.NewReaderSize(plain, 64<<10)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, wrapError(errorcode.ConnectionLost, err, "the connection to the API server broke")
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		return nil, statusError("port-forward", response)
	}
	sum := sha1.Sum([]byte(key + acceptSuffix))
	if response.Header.Get("Sec-Websocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, newError(errorcode.ProtocolError, "the server's WebSocket answer does not match the request")
	}
	return &forwardConn{Conn: plain, reader: reader}, nil
}

// The frame types of RFC 6455 that matter here, and the channels of one forwarded port.
const (
	frameBinary, frameClose, framePing, framePong = 2, 8, 9, 10
	channelData, channelError                     = 0, 1
	// frameBytesMax is larger than any frame an API server sends; a length beyond it is not a length.
	frameBytesMax = 64 << 20
	// sendBytesMax is what API servers take in one frame without trouble.
	sendBytesMax = 32 << 10
)

// forwardConn is one TCP connection to a Pod's port, in the frames of a WebSocket. The protocol has no half-close.
type forwardConn struct {
	net.Conn
	reader  *bufio.Reader
	pending []byte
	seen    [2]bool
	writing sync.Mutex
}

// Read returns what the port sent.
func (c *forwardConn) Read(into []byte) (int, error) {
	for len(c.pending) == 0 {
		message, err := c.nextMessage()
		if err != nil {
			return 0, err
		}
		if err := c.take(message); err != nil {
			return 0, err
		}
	}
	n := copy(into, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

func (c *forwardConn) take(message []byte) error {
	if len(message) == 0 || int(message[0]) >= len(c.seen) {
		return nil
	}
	channel, body := message[0], message[1:]
	if !c.seen[channel] {
		// Each channel begins with its port, two bytes.
		c.seen[channel] = true
		body = body[min(2, len(body)):]
	}
	if channel == channelError && len(body) > 0 {
		return newError(errorcode.Unavailable, "%s", strings.TrimSpace(string(body)))
	}
	if channel == channelData {
		c.pending = body
	}
	return nil
}

// nextMessage joins the frames of one message and answers what the protocol asks in between.
func (c *forwardConn) nextMessage() ([]byte, error) {
	var message []byte
	for {
		kind, final, payload, err := c.nextFrame()
		if err != nil {
			return nil, err
		}
		switch kind {
		case frameClose:
			return nil, io.EOF
		case framePing:
			// Who asks and goes away has still said what came before.
			_ = c.writeFrame(framePong, payload)
		case framePong:
		default:
			if message = append(message, payload...); final {
				return message, nil
			}
		}
	}
}

func (c *forwardConn) nextFrame() (kind byte, final bool, payload []byte, err error) {
	var head [8]byte
	if _, err = io.ReadFull(c.reader, head[:2]); err != nil {
		return
	}
	kind, final = head[0]&0x0f, head[0]&0x80 != 0
	length := uint64(head[1] & 0x7f)
	switch length {
	case 126:
		_, err = io.ReadFull(c.reader, head[:2])
		length = uint64(binary.BigEndian.Uint16(head[:2]))
	case 127:
		_, err = io.ReadFull(c.reader, head[:8])
		length = binary.BigEndian.Uint64(head[:8])
	}
	if err == nil && length > frameBytesMax {
		err = newError(errorcode.ProtocolError, "the API server sent a frame of %d bytes", length)
	}
	if err != nil {
		return
	}
	payload = make([]byte, length)
	_, err = io.ReadFull(c.reader, payload)
	return
}

// Write sends bytes to the port.
func (c *forwardConn) Write(data []byte) (int, error) {
	for sent := 0; sent < len(data); {
		piece := data[sent:min(len(data), sent+sendBytesMax)]
		if err := c.writeFrame(frameBinary, append([]byte{channelData}, piece...)); err != nil {
			return sent, err
		}
		sent += len(piece)
	}
	return len(data), nil
}

// writeFrame sends a client's frame: masked, as the protocol demands of clients.
func (c *forwardConn) writeFrame(kind byte, payload []byte) error {
	frame := []byte{0x80 | kind}
	switch length := len(payload); {
	case length < 126:
		frame = append(frame, 0x80|byte(length))
	case length < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(length))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(length))
	}
	var mask [4]byte
	rand.Read(mask[:])
	frame = append(frame, mask[:]...)
	for i, b := range payload {
		frame = append(frame, b^mask[i&3])
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.Conn.Write(frame)
	return err
}
