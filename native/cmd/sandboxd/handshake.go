package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// What is said before the entrypoint runs, a line each.
const (
	readyLine = "ready\n"
	goLine    = "go\n"
)

// sayReady writes to the program that started the sandbox that its ports are open. That program need not read it: a write through package os would end the program
// with a signal where the other end is closed.
func sayReady() {
	if _, err := unix.Write(unix.Stdout, []byte(readyLine)); err != nil {
		slog.Warn("nobody hears that the ports are open", "error", err)
	}
}

// awaitGo returns when the sandbox's network, name and rules are in force.
func awaitGo(input io.Reader) error {
	answer, err := bufio.NewReader(input).ReadString('\n')
	if err == nil && answer != goLine {
		err = fmt.Errorf("%q was said instead", answer)
	}
	return err
}

// giveUpStandardStreams closes what was talked over: nothing that runs later finds a way out of the sandbox there, and a saved sandbox holds
// nothing of this machine.
func giveUpStandardStreams() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for _, standard := range []int{unix.Stdin, unix.Stdout} {
		if err := unix.Dup3(int(null.Fd()), standard, 0); err != nil {
			return err
		}
	}
	return nil
}
