package supervise

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"agent-sandbox.dev/native/internal/initd"
	"agent-sandbox.dev/native/internal/process"
)

var testReaper = sync.OnceValue(process.NewReaper)

func newSupervisor(t *testing.T) (s *Supervisor, directory string) {
	t.Helper()
	registry, err := process.NewRegistry(testReaper(), process.Environment(), 40)
	if err != nil {
		t.Fatal(err)
	}
	directory = t.TempDir()
	s = New(registry, initd.NewJournal(directory+"/log", 1<<20, 2))
	s.delay = 10 * time.Millisecond
	t.Cleanup(func() {
		for name := range s.services {
			s.End(name)
		}
	})
	return s, directory
}

func shell(directory, script string) process.Spec {
	return process.Spec{Command: []string{"/bin/sh", "-c", script}, Dir: directory}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func logOf(directory string) string {
	text, _ := os.ReadFile(directory + "/log/" + initd.LogName)
	return string(text)
}

func TestServiceIsStartedAgain(t *testing.T) {
	s, directory := newSupervisor(t)
	p, replayed, err := s.Start("web", "key", shell(directory, "echo run; exit 3"))
	if err != nil || replayed || p.Spec.Tag != "web" {
		t.Fatalf("%+v %v %v", p, replayed, err)
	}
	eventually(t, "three runs in the log", func() bool { return strings.Count(logOf(directory), "[web] run\n") >= 3 })
	if !strings.Contains(logOf(directory), "[web] sandboxd: ended with exit code 3; started again in 10ms\n") {
		t.Errorf("%q", logOf(directory))
	}
	again, replayed, err := s.Start("web", "key", shell(directory, "echo run"))
	if err != nil || !replayed || again != p {
		t.Errorf("a repeated request: %+v %v %v", again, replayed, err)
	}
	if !s.End("web") || s.End("web") {
		t.Error("a service is ended once")
	}
	before := strings.Count(logOf(directory), "] run\n")
	time.Sleep(50 * time.Millisecond)
	if after := strings.Count(logOf(directory), "] run\n"); after != before {
		t.Errorf("%d runs after its end", after-before)
	}
}

func TestServiceOfTheSameNameIsReplaced(t *testing.T) {
	s, directory := newSupervisor(t)
	first, _, err := s.Start("web", "", shell(directory, "sleep 1000 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := s.Start("web", "", shell(directory, "exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ended := first.Exit(); !ended {
		t.Error("the first one runs on")
	}
	if _, ended := second.Exit(); ended || len(s.services) != 1 {
		t.Errorf("%d services", len(s.services))
	}
	// A sandbox with auto-suspension falls asleep while its services wait for callers.
	if running := s.registry.Running(); running != 0 {
		t.Errorf("%d processes count as use", running)
	}
}

func TestServiceThatCannotBeStarted(t *testing.T) {
	s, directory := newSupervisor(t)
	if _, _, err := s.Start("web", "", process.Spec{Command: []string{"/no/such"}, Dir: directory}); err == nil || len(s.services) != 0 {
		t.Errorf("%v, %d services", err, len(s.services))
	}
	for _, name := range []string{"", "Web", "-a", "a_b", strings.Repeat("x", 64)} {
		if _, _, err := s.Start(name, "", shell(directory, "true")); err != ErrName {
			t.Errorf("%q: %v", name, err)
		}
	}
	for range servicesMax {
		if _, _, err := s.Start("s"+process.NewID(), "", shell(directory, "exec sleep 1000")); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Start("more", "", shell(directory, "true")); err != ErrTooMany {
		t.Errorf("%v", err)
	}
}

func TestServicesOfTheStart(t *testing.T) {
	s, directory := newSupervisor(t)
	declared, err := Parse(`[{"name":"web","command":["/bin/sh","-c","echo $A in $PWD; exec sleep 1000"],"env":{"A":"b"}},{"name":"late","command":["./late"]},{"name":"No","command":["true"]}]`)
	if err != nil {
		t.Fatal(err)
	}
	s.StartAll(declared, directory)
	eventually(t, "the service says where it is", func() bool { return strings.Contains(logOf(directory), "[web] b in "+directory+"\n") })
	eventually(t, "one that cannot be started says so", func() bool { return strings.Contains(logOf(directory), "[late] sandboxd: cannot be started: ") })
	if err := os.WriteFile(directory+"/late", []byte("#!/bin/sh\necho there\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	eventually(t, "and is tried again", func() bool { return strings.Contains(logOf(directory), "[late] there\n") })
	if !strings.Contains(logOf(directory), "[No] sandboxd: the name of a service") {
		t.Errorf("%q", logOf(directory))
	}
	if _, err := Parse("{"); err == nil {
		t.Error("nonsense is a list")
	}
}

// runningIn counts the processes of a registry that have not ended.
func runningIn(registry *process.Registry) int {
	running := 0
	for _, p := range registry.List() {
		if _, ended := p.Exit(); !ended {
			running++
		}
	}
	return running
}

func TestStartsAndEndsAtOnceLeaveNoProcess(t *testing.T) {
	s, directory := newSupervisor(t)
	for round := range 60 {
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				if _, _, err := s.Start("web", "", shell(directory, "exec sleep 1000")); err != nil {
					t.Error(err)
				}
			})
			calls.Go(func() { s.End("web") })
		}
		calls.Wait()
		if running := runningIn(s.registry); running > 1 {
			t.Fatalf("round %d: %d processes of one service", round, running)
		}
		s.End("web")
		if running := runningIn(s.registry); running != 0 {
			t.Fatalf("round %d: %d processes after the end", round, running)
		}
	}
	if len(s.changing) != 0 {
		t.Errorf("%d locks are kept", len(s.changing))
	}
}

func TestRepeatedRequestsAtOnceStartOneProcess(t *testing.T) {
	s, directory := newSupervisor(t)
	for range 20 {
		key := process.NewID()
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				p, _, err := s.Start("web", key, shell(directory, "exec sleep 1000"))
				if err != nil {
					t.Error(err)
				} else if _, ended := p.Exit(); ended {
					t.Error("a repeated request ended what the first started")
				}
			})
		}
		calls.Wait()
	}
}

func TestServiceThatIsDeclaredTwiceRunsOnce(t *testing.T) {
	s, directory := newSupervisor(t)
	declared := Service{Name: "web", Command: []string{"/bin/sleep", "1000"}}
	s.StartAll([]Service{declared}, directory)
	eventually(t, "the first runs", func() bool { return runningIn(s.registry) == 1 })
	s.StartAll([]Service{declared}, directory)
	s.End("web")
	if running := runningIn(s.registry); running != 0 {
		t.Errorf("%d processes after the end", running)
	}
}

func TestServiceThatEndedBeforeItIsKeptIsKilled(t *testing.T) {
	s, directory := newSupervisor(t)
	kept, err := s.add("web", shell(directory, "exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.registry.Start(kept.spec)
	if err != nil {
		t.Fatal(err)
	}
	s.forget(kept)
	s.keep(kept, p)
	if _, ended := p.Exit(); !ended {
		p.KillTree()
		t.Error("the process runs on")
	}
}
