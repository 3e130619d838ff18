package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Size is a terminal's window size.
type Size struct{ Cols, Rows uint16 }

// openTerminal makes a pseudo terminal of the given size: the master for us, the slave for the child.
func openTerminal(size Size) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("open /dev/ptmx", err)
	}
	// Non-blocking from the start, so that reads and writes can be given up.
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err = openSlave(fd)
	if err == nil {
		err = setSize(fd, size)
	}
	if err != nil {
		master.Close()
		if slave != nil {
			slave.Close()
		}
		return nil, nil, err
	}
	return master, slave, nil
}

func openSlave(master int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, os.NewSyscallError("unlock terminal", err)
	}
	number, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return nil, os.NewSyscallError("number of terminal", err)
	}
	name := "/dev/pts/" + strconv.Itoa(int(number))
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open "+name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func setSize(fd int, size Size) error {
	if size.Cols == 0 || size.Rows == 0 {
		return nil
	}
	return os.NewSyscallError("set terminal size", unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows}))
}
