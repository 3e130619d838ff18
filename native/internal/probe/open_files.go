package probe

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// OpenFilesCommand is the word that makes this program one of the processes that openMany starts: it is followed by a directory and a count.
const OpenFilesCommand = "open-files"

const (
	// openTime bounds openMany. In a sandbox 3,000 files a second were opened on a machine of two busy processors, so this is enough for 60,000.
	openTime = 20 * time.Second
	// openersAtOnce is how many processes open files at the same time.
	openersAtOnce = 4
	// filesPerOpener is below every usual limit of one process; what is tried is the limit of a sandbox.
	filesPerOpener = 8192
)

// opener is a process that holds files until its input ends.
type opener struct {
	command *exec.Cmd
	input   io.Closer
	count   int64
	why     string
}

// openMany holds Number files below Path open at once, in as many processes as that takes, and keeps them for HoldMs. It comes through when it gets
// all of them; the files have no names any more, so that nothing of them is left when it is killed.
func openMany(a Attempt) Outcome {
	directory, err := os.MkdirTemp(a.Path, "sandbox-probe-")
	if err != nil {
		return refused(err)
	}
	defer os.RemoveAll(directory)
	var held []*opener
	defer func() {
		for _, one := range held {
			one.input.Close()
			one.command.Wait()
		}
	}()
	total, why := int64(0), ""
	for end := time.Now().Add(openTime); total < a.Number && why == ""; {
		if time.Now().After(end) {
			return Outcome{Unknown: true, Detail: fmt.Sprintf("only %d files after %v", total, openTime)}
		}
		started, err := startOpeners(directory, a.Number-total)
		held = append(held, started...)
		if err != nil {
			why = err.Error()
		}
		for _, one := range started {
			total += one.count
			if one.why != "" {
				why = one.why
			}
		}
	}
	time.Sleep(time.Duration(a.HoldMs) * time.Millisecond)
	if why != "" {
		return refusedBecause("after %d files: %s", total, why)
	}
	return through("holds %d files", total)
}

// startOpeners starts one round of processes for at most `wanted` files, and returns when each has what it can get.
func startOpeners(directory string, wanted int64) ([]*opener, error) {
	var started []*opener
	var outputs []*bufio.Reader
	var failed error
	for len(started) < openersAtOnce && wanted > 0 {
		count := min(wanted, filesPerOpener)
		one, output, err := startOpener(directory, count)
		if err != nil {
			failed = err
			break
		}
		wanted -= count
		started, outputs = append(started, one), append(outputs, output)
	}
	for i, one := range started {
		line, err := outputs[i].ReadString('\n')
		if err != nil {
			one.why = "the process that opens files was ended"
			continue
		}
		number, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		one.count, _ = strconv.ParseInt(number, 10, 64)
		one.why = why
	}
	return started, failed
}

func startOpener(directory string, count int64) (*opener, *bufio.Reader, error) {
	command := exec.Command("/proc/self/exe", OpenFilesCommand, directory, strconv.FormatInt(count, 10))
	input, err := command.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	return &opener{command: command, input: input}, bufio.NewReader(output), nil
}

// OpenFiles opens files without a name below a directory, says how many it got and why not more, and holds them until its input ends.
func OpenFiles(directory, count string, in io.Reader, out io.Writer) error {
	wanted, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s/%d", directory, os.Getpid())
	opened, why := int64(0), ""
	for ; opened < wanted && why == ""; opened++ {
		// Each is a file of its own: a sandbox opens the machine's file once for all who open it inside.
		if _, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err != nil {
			why = err.Error()
			break
		}
		if err := unix.Unlink(name); err != nil {
			why = err.Error()
		}
	}
	if _, err := fmt.Fprintf(out, "%d %s\n", opened, why); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}
