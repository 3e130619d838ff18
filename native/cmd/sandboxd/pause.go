package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// pauseCommand makes this program the first process of a sandbox that was made ahead of need.
const pauseCommand = "pause"

const (
	// nobody has no right that it does not need to sleep.
	nobody = 65534
	// sleepAfter leaves the processor to the container that is started at this moment.
	sleepAfter = 5 * time.Second
)

// sleepArgv stays for the sandbox's life; it takes a tenth of this program's memory.
var sleepArgv = []string{"/usr/bin/sleep", "infinity"}

// pause waits for the sandbox's name, sets it, gives up every right and says so: containers start after that.
func pause(input io.Reader, output io.Writer, setName func([]byte) error, giveUp func() error) error {
	name, err := bufio.NewReader(input).ReadString('\n')
	if err != nil {
		return err
	}
	if err = setName([]byte(strings.TrimSuffix(name, "\n"))); err == nil {
		err = giveUp()
	}
	if err != nil {
		_, _ = fmt.Fprintf(output, "%v\n", err)
		return err
	}
	_, err = io.WriteString(output, "ok\n")
	return err
}

// giveUpRights changes to a user without rights; the kernel takes the capabilities of all threads with that.
func giveUpRights() error {
	for _, drop := range []func() error{
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setresgid(nobody, nobody, nobody) },
		func() error { return syscall.Setresuid(nobody, nobody, nobody) },
	} {
		if err := drop(); err != nil {
			return err
		}
	}
	return nil
}

func runPause() error {
	if err := pause(os.Stdin, os.Stdout, syscall.Sethostname, giveUpRights); err != nil {
		return err
	}
	time.Sleep(sleepAfter)
	return syscall.Exec(sleepArgv[0], sleepArgv, nil)
}
