// Command pause is the first process of a Pod of the real node, and of the namespaces that the node runs in: it waits, and takes the exit of
// every process that lost its parent. Without that, a shim whose parent is gone stays a zombie, and a program that waits for its end never sees it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	for {
		select {
		case <-stop:
			return
		case <-ended:
			takeExits()
		}
	}
}

// takeExits takes all that are there: one signal may stand for several.
func takeExits() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}
