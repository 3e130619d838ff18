package process

import (
	"os"
	"syscall"
	"testing"
)

// BenchmarkStart is what a process costs without any protocol around it.
func BenchmarkStart(b *testing.B) {
	registry := newRegistry(b)
	for b.Loop() {
		p, err := registry.Start(Spec{Command: []string{"/bin/true"}, Dir: "/", CaptureBytes: 1 << 20, Forget: true})
		if err != nil {
			b.Fatal(err)
		}
		<-p.Done()
	}
}

// BenchmarkBareFork is what the system itself takes.
func BenchmarkBareFork(b *testing.B) {
	reaper := testReaper()
	for b.Loop() {
		done := make(chan struct{})
		_, err := reaper.Start(func() (int, error) {
			return syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Env: os.Environ()})
		}, func(syscall.WaitStatus) { close(done) })
		if err != nil {
			b.Fatal(err)
		}
		<-done
	}
}
