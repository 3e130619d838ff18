package daemon

import (
	"net"
	"os"
	"strings"
)

// States of a connection in the kernel's tables.
const (
	tcpEstablished = "01"
	tcpListening   = "0A"
)

// inbound counts the TCP connections that others hold to servers inside this sandbox. Those to the daemon are its requests, and
// those from the gateway are the router's and the node's, which tell of themselves; both are left out.
func (s *Server) inbound() int {
	text := func(name string) string {
		bytes, _ := os.ReadFile("/proc/net/" + name)
		return string(bytes)
	}
	return countInbound(text("tcp")+text("tcp6"), gatewayOf(text("route")), s.ownPorts)
}

// noteOwnPorts remembers where the daemon itself listens.
func (s *Server) noteOwnPorts(listeners []net.Listener) {
	for _, listener := range listeners {
		if address, ok := listener.Addr().(*net.TCPAddr); ok {
			s.ownPorts = append(s.ownPorts, hexPort(address.Port))
		}
	}
}

func hexPort(port int) string {
	const digits = "0123456789ABCDEF"
	return string([]byte{digits[port>>12&15], digits[port>>8&15], digits[port>>4&15], digits[port&15]})
}

// countInbound reads tables in the form of /proc/net/tcp; addresses and ports are hexadecimal.
func countInbound(table, gateway string, ownPorts []string) int {
	listening := map[string]bool{}
	type connection struct{ port, from string }
	var established []connection
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasSuffix(fields[0], ":") {
			continue
		}
		_, port, _ := strings.Cut(fields[1], ":")
		from, _, _ := strings.Cut(fields[2], ":")
		switch fields[3] {
		case tcpListening:
			listening[port] = true
		case tcpEstablished:
			established = append(established, connection{port, from})
		}
	}
	for _, port := range ownPorts {
		delete(listening, port)
	}
	count := 0
	for _, one := range established {
		if listening[one.port] && !isOwnAddress(one.from) && (gateway == "" || !strings.HasSuffix(one.from, gateway)) {
			count++
		}
	}
	return count
}

// isOwnAddress says whether an address is the sandbox's own loopback, of either family. Words are in the host's byte order.
func isOwnAddress(address string) bool {
	if address == "00000000000000000000000001000000" {
		return true
	}
	isVersion4 := len(address) == 8 || strings.HasPrefix(address, "0000000000000000FFFF0000")
	return isVersion4 && strings.HasSuffix(address, "7F")
}

// gatewayOf is the default gateway in a table in the form of /proc/net/route; empty where there is none.
func gatewayOf(table string) string {
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "00000000" && fields[2] != "00000000" {
			return fields[2]
		}
	}
	return ""
}
