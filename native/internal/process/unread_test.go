package process

import (
	"os"
	"testing"
	"time"
)

// A busy machine may not run a pump for longer than a pipe must be silent; what lies in the pipe is output all the same.
func TestOutputThatNobodyHasReadYetIsNotSilence(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	p := &Process{done: make(chan struct{}), endedAt: time.Now().Add(-2 * outputQuiet), outputs: [2]outlet{{state: outletPumped, file: reader}}}
	p.registered.Store(true)
	if p.hasUnread() {
		t.Fatal("an empty pipe has nothing unread")
	}
	if _, err := writer.WriteString("late"); err != nil {
		t.Fatal(err)
	}
	if !p.hasUnread() {
		t.Fatal("four bytes lie in the pipe")
	}
	// Were the process taken for quiet, completing it would panic here: it has no log and no input.
	p.checkQuiet()
	select {
	case <-p.done:
		t.Fatal("completed with output unread")
	default:
	}
	p.completing.Do(func() {})
}
