package daemon

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen binds TCP addresses and Unix sockets ("unix:/path"); on failure it closes what it had bound.
func Listen(addresses []string) ([]net.Listener, error) {
	var bound []net.Listener
	for _, address := range addresses {
		listener, err := listen(address)
		if err != nil {
			for _, one := range bound {
				one.Close()
			}
			return nil, err
		}
		bound = append(bound, listener)
	}
	return bound, nil
}

func listen(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		// A socket left behind by a killed daemon would make the bind fail.
		syscall.Unlink(path)
		return net.Listen("unix", path)
	}
	listener, err := listenAlone(address)
	if errors.Is(err, unix.EADDRINUSE) && isListenerAlone() {
		// Where no second socket can be bound beside a listener, what is in the way may only be connections of the daemon before.
		return net.Listen("tcp", address)
	}
	return listener, err
}

// listenAlone binds so that no other socket can be bound to the same port beside it. The sandbox's kernel lets a socket with SO_REUSEADDR bind one of the sandbox's
// addresses although another listens on all of them, if that has the option too, as Go sets it for every listener; the more specific address then
// gets the connections. Without it every further bind of the port is refused, whatever its address and options.
//
// This keeps the port's traffic with the daemon for as long as the daemon lives, and it is bound before any program of its container runs. It does not
// protect a sandbox from itself: a program with the daemon's user may end it, which ends the container and all its programs, and another container
// of the same Pod, which shares its addresses, may then be first.
func listenAlone(address string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return setReuse(raw, 0) }}
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	// Only the bind counts there. On Linux it is connections that count, which have the option from here: the next daemon may bind beside them.
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err == nil {
		err = setReuse(raw, 1)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

func setReuse(raw syscall.RawConn, value int) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, value) })
	return errors.Join(err, failed)
}

// isListenerAlone tries whether this kernel keeps a listener's port from everybody else even where both have SO_REUSEADDR, as Linux does.
func isListenerAlone() bool {
	everywhere, err := net.Listen("tcp", ":0")
	if err != nil {
		return false
	}
	defer everywhere.Close()
	_, port, err := net.SplitHostPort(everywhere.Addr().String())
	if err != nil {
		return false
	}
	beside, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return errors.Is(err, unix.EADDRINUSE)
	}
	beside.Close()
	return false
}
