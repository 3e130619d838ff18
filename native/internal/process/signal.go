package process

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalNumberMax is the last real-time signal of Linux.
const signalNumberMax = 64

// ParseSignal reads "SIGTERM", "TERM", "term" or "15".
func ParseSignal(text string) (syscall.Signal, error) {
	if number, err := strconv.Atoi(text); err == nil {
		if number < 1 || number > signalNumberMax {
			return 0, fmt.Errorf("signal number %d is not between 1 and %d", number, signalNumberMax)
		}
		return syscall.Signal(number), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if signal := unix.SignalNum(name); signal != 0 {
		return signal, nil
	}
	return 0, fmt.Errorf("unknown signal %q", text)
}

// SignalName is the name of a signal, "SIGTERM" and so on.
func SignalName(signal syscall.Signal) string {
	if name := unix.SignalName(signal); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(signal))
}
