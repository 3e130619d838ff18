package ruleset

import (
	"encoding/binary"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// Numbers of the kernel's nfnetlink and nf_tables.
const (
	groupNftables = 7
	newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	attrProcess   = unix.NFTA_GEN_PROC_PID
	generalBytes  = 4
)

// commits hears from the kernel whose transaction has come into force. The program that made it says so later: the kernel lets it end only when
// no processor can still be reading the rules before, which takes several times as long as everything else it does.
type commits struct {
	mu      sync.Mutex
	waiting map[int]chan struct{}
}

// theCommits is opened once and never closed: closing has to wait as the program has.
var theCommits = sync.OnceValue(openCommits)

// initialPidNamespace is the inode of the namespace whose numbers the kernel tells.
const initialPidNamespace = 0xeffffffc

// openCommits is nil where the kernel tells nothing, or knows processes by other numbers; programs are then waited for.
func openCommits() *commits {
	var namespace unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &namespace) != nil || namespace.Ino != initialPidNamespace {
		return nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil
	}
	socket := os.NewFile(uintptr(fd), "nftables commits")
	if unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil ||
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNftables) != nil {
		socket.Close()
		return nil
	}
	c := &commits{waiting: map[int]chan struct{}{}}
	go c.listen(socket)
	return c
}

// start starts a program; the channel is closed when its transaction is in force. What is lost in between, as under a flood of changes, is
// only told by the program's end.
func (c *commits) start(cmd *exec.Cmd) (<-chan struct{}, error) {
	if c == nil {
		return nil, cmd.Start()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	inForce := make(chan struct{})
	c.waiting[cmd.Process.Pid] = inForce
	return inForce, nil
}

func (c *commits) forget(cmd *exec.Cmd) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, cmd.Process.Pid)
}

func (c *commits) listen(socket *os.File) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := socket.Read(buffer)
		if err != nil {
			// More came than there was room for: those who wait learn it from their program.
			if pathErr, ok := err.(*os.PathError); ok && pathErr.Err == unix.ENOBUFS {
				continue
			}
			return
		}
		for _, pid := range processesIn(buffer[:n]) {
			c.told(pid)
		}
	}
}

func (c *commits) told(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if inForce := c.waiting[pid]; inForce != nil {
		delete(c.waiting, pid)
		close(inForce)
	}
}

// processesIn are the authors of the generations that a datagram tells of.
func processesIn(datagram []byte) []int {
	var found []int
	for len(datagram) >= unix.NLMSG_HDRLEN {
		length := int(binary.NativeEndian.Uint32(datagram))
		if length < unix.NLMSG_HDRLEN || length > len(datagram) {
			break
		}
		if binary.NativeEndian.Uint16(datagram[4:]) == newGeneration && length >= unix.NLMSG_HDRLEN+generalBytes {
			if pid, ok := processOf(datagram[unix.NLMSG_HDRLEN+generalBytes : length]); ok {
				found = append(found, pid)
			}
		}
		datagram = datagram[min(aligned(length), len(datagram)):]
	}
	return found
}

func processOf(attributes []byte) (int, bool) {
	for len(attributes) >= unix.SizeofNlAttr {
		length, kind := int(binary.NativeEndian.Uint16(attributes)), binary.NativeEndian.Uint16(attributes[2:])
		if length < unix.SizeofNlAttr || length > len(attributes) {
			break
		}
		if kind == attrProcess && length >= unix.SizeofNlAttr+4 {
			return int(binary.BigEndian.Uint32(attributes[unix.SizeofNlAttr:])), true
		}
		attributes = attributes[min(aligned(length), len(attributes)):]
	}
	return 0, false
}

// aligned is where the next message or attribute begins.
func aligned(length int) int { return (length + 3) &^ 3 }
