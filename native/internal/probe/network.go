package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// answer is what every listener of Hold says; only who says it counts as reached.
const answer = "reached"

// datagramTries because one may be lost on a busy machine.
const datagramTries = 3

// connect reaches a listener of Hold.
func connect(a Attempt) Outcome {
	conn, err := dial(a)
	if err != nil {
		return refused(err)
	}
	defer conn.Close()
	return exchange(conn, a.Network, []byte(answer), func(reply []byte) bool { return string(reply) == answer })
}

// openPort finds that connections to a port are accepted, by any program.
func openPort(a Attempt) Outcome {
	conn, err := dial(a)
	if err != nil {
		return refused(err)
	}
	conn.Close()
	return through("connected to %s", target(a))
}

func dial(a Attempt) (net.Conn, error) { return net.DialTimeout(a.Network, target(a), networkWait) }

func target(a Attempt) string { return net.JoinHostPort(a.Address, strconv.Itoa(a.Port)) }

func exchange(conn net.Conn, network string, question []byte, isAnswer func([]byte) bool) Outcome {
	tries := 1
	if network == "udp" {
		tries = datagramTries
	}
	var last error
	for range tries {
		conn.SetDeadline(time.Now().Add(networkWait / time.Duration(tries)))
		if _, last = conn.Write(question); last != nil {
			return refused(last)
		}
		buffer := make([]byte, 1500)
		n, err := conn.Read(buffer)
		if err == nil && isAnswer(buffer[:n]) {
			return through("%s answered", conn.RemoteAddr())
		}
		last = err
	}
	if last == nil {
		return refusedBecause("%s answered something else", conn.RemoteAddr())
	}
	return refused(last)
}

// askResolver sends a question about Name to a resolver that is not the sandbox's own.
func askResolver(a Attempt) Outcome {
	conn, err := dial(a)
	if err != nil {
		return refused(err)
	}
	defer conn.Close()
	return exchange(conn, a.Network, question(a), func(reply []byte) bool { return len(reply) > 0 })
}

// question is a DNS query for an address; over TCP its length stands before it.
func question(a Attempt) []byte {
	message := []byte{0x76, 0x65, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	message = append(message, byte(len(a.Name)))
	message = append(message, a.Name...)
	message = append(message, 7, 'i', 'n', 'v', 'a', 'l', 'i', 'd', 0, 0, 1, 0, 1)
	if a.Network == "tcp" {
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
	}
	return message
}

// ping sends an echo request, by a raw socket or by the kind that needs no privilege.
func ping(a Attempt) Outcome {
	address, err := netip.ParseAddr(a.Address)
	if err != nil || !address.Is4() {
		return refusedBecause("%q is not an IPv4 address", a.Address)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	}
	if err != nil {
		return refused(err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(int64(networkWait / datagramTries))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
	to := &unix.SockaddrInet4{Addr: address.As4()}
	for range datagramTries {
		if err := unix.Sendto(fd, echoRequest(), 0, to); err != nil {
			return refused(err)
		}
		if isEchoed(fd, address) {
			return through("%s answered", address)
		}
	}
	return refusedBecause("no answer")
}

func isEchoed(fd int, address netip.Addr) bool {
	buffer := make([]byte, 1500)
	for end := time.Now().Add(networkWait / datagramTries); time.Now().Before(end); {
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return false
		}
		sender, ok := from.(*unix.SockaddrInet4)
		reply := buffer[:n]
		// A raw socket also brings the IP header, whose length is in its first byte.
		if n > 0 && reply[0]>>4 == 4 {
			reply = reply[min(n, int(reply[0]&15)*4):]
		}
		if ok && netip.AddrFrom4(sender.Addr) == address && len(reply) > 0 && reply[0] == 0 {
			return true
		}
	}
	return false
}

func echoRequest() []byte {
	packet := []byte{8, 0, 0, 0, 0x76, 0x65, 0, 1, 'v', 'e', 'r', 'i', 'f', 'y', '!', '!'}
	binary.BigEndian.PutUint16(packet[2:], checksum(packet))
	return packet
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// forge sends a datagram whose sender it chooses. Whether it came through is known at its destination only, which notes Name.
func forge(a Attempt) Outcome {
	packet, to, err := forged(a)
	if err != nil {
		return refused(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return refused(fmt.Errorf("raw socket: %w", err))
	}
	defer unix.Close(fd)
	for range datagramTries {
		if err := unix.Sendto(fd, packet, 0, to); err != nil {
			return refused(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return through("sent as %s", a.Source)
}

func forged(a Attempt) ([]byte, *unix.SockaddrInet4, error) {
	source, err := netip.ParseAddr(a.Source)
	if err != nil {
		return nil, nil, err
	}
	address, err := netip.ParseAddr(a.Address)
	if err != nil {
		return nil, nil, err
	}
	if !source.Is4() || !address.Is4() {
		return nil, nil, errors.New("forged packets are IPv4")
	}
	size := 28 + len(a.Name)
	packet := make([]byte, size)
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(packet[2:], uint16(size))
	from, to := source.As4(), address.As4()
	copy(packet[12:], from[:])
	copy(packet[16:], to[:])
	binary.BigEndian.PutUint16(packet[10:], checksum(packet[:20]))
	binary.BigEndian.PutUint16(packet[20:], uint16(a.Port))
	binary.BigEndian.PutUint16(packet[22:], uint16(a.Port))
	binary.BigEndian.PutUint16(packet[24:], uint16(8+len(a.Name)))
	copy(packet[28:], a.Name)
	return packet, &unix.SockaddrInet4{Addr: to}, nil
}
