package daemon

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// openPort is a TCP port that something in the sandbox listens on.
type openPort struct {
	Port      int      `json:"port"`
	Addresses []string `json:"addresses"`
}

// showPorts answers /v1/ports.
func (s *Server) showPorts(w http.ResponseWriter) {
	// A kernel without one of the families has no table of it.
	version4, _ := os.ReadFile("/proc/net/tcp")
	version6, _ := os.ReadFile("/proc/net/tcp6")
	writeJSON(w, http.StatusOK, map[string][]openPort{"ports": openPorts(string(version4)+string(version6), s.ownPorts)})
}

// openPorts reads tables in the form of /proc/net/tcp; the daemon's own ports are left out. The result is in ascending order.
func openPorts(table string, ownPorts []string) []openPort {
	found := map[int][]string{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasSuffix(fields[0], ":") || fields[3] != tcpListening {
			continue
		}
		text, digits, _ := strings.Cut(fields[1], ":")
		port, err := strconv.ParseUint(digits, 16, 16)
		address, ok := tableAddress(text)
		if err != nil || !ok || slices.Contains(ownPorts, digits) || slices.Contains(found[int(port)], address) {
			continue
		}
		found[int(port)] = append(found[int(port)], address)
	}
	ports := make([]openPort, 0, len(found))
	for port, addresses := range found {
		slices.Sort(addresses)
		ports = append(ports, openPort{port, addresses})
	}
	slices.SortFunc(ports, func(a, b openPort) int { return cmp.Compare(a.Port, b.Port) })
	return ports
}

// tableAddress reads an address of the kernel's tables: words of four bytes in the host's byte order.
func tableAddress(text string) (string, bool) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return "", false
	}
	for at := 0; at < len(raw); at += 4 {
		binary.NativeEndian.PutUint32(raw[at:], binary.BigEndian.Uint32(raw[at:]))
	}
	address, ok := netip.AddrFromSlice(raw)
	return address.String(), ok
}
