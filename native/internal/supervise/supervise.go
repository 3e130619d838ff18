// Package supervise keeps declared services running: each is started again, with a growing delay, whenever it ends.
package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"agent-sandbox.dev/native/internal/initd"
	"agent-sandbox.dev/native/internal/process"
)

// Bounds of the delay before a service is started again, and how long it must have run for the delay to begin anew.
const (
	delayFirst = time.Second
	delayMax   = time.Minute
	runsWell   = time.Minute
)

// servicesMax bounds the services of a sandbox; packages/api has the same figure.
const servicesMax = 16

// outputBytes is how much of a service's output can be replayed to a client that attaches.
const outputBytes = 1 << 20

// Service is a declared service as the Sandbox's annotation has it.
type Service struct {
	Name    string            `json:"name"`
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	User    string            `json:"user,omitempty"`
}

// Parse reads a list of services.
func Parse(text string) ([]Service, error) {
	if text == "" {
		return nil, nil
	}
	var services []Service
	if err := json.Unmarshal([]byte(text), &services); err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	return services, nil
}

// ErrName says that a service's name is not one.
var ErrName = errors.New("the name of a service is 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends")

// ErrTooMany says that a sandbox has as many services as it may.
var ErrTooMany = fmt.Errorf("a sandbox has at most %d services; end one first", servicesMax)

// isName is written out: a compiled expression costs every sandbox memory.
func isName(name string) bool {
	for i := range len(name) {
		letter := name[i]
		isInner := letter == '-' && i > 0 && i < len(name)-1
		if !isInner && (letter < 'a' || letter > 'z') && (letter < '0' || letter > '9') {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 63
}

// Supervisor runs services.
type Supervisor struct {
	registry *process.Registry
	journal  *initd.Journal
	// delay is delayFirst but in tests.
	delay time.Duration

	mu       sync.Mutex
	services map[string]*service
	// changing has a lock for each name whose service is being started or ended.
	changing map[string]*nameLock
}

// nameLock is dropped from the map with its last user, so that names which callers choose take no memory.
type nameLock struct {
	sync.Mutex
	users int
}

// service is one that is kept running.
type service struct {
	name   string
	spec   process.Spec
	source *initd.Source
	// over is closed when it is ended, done when nothing of it runs any more.
	over, done chan struct{}

	mu      sync.Mutex
	current *process.Process
}

// New makes a supervisor without services.
func New(registry *process.Registry, journal *initd.Journal) *Supervisor {
	return &Supervisor{registry: registry, journal: journal, delay: delayFirst, services: map[string]*service{}, changing: map[string]*nameLock{}}
}

// StartAll starts the services that the sandbox was given at its start. One that cannot be started is tried again like one that ended.
func (s *Supervisor) StartAll(declared []Service, directory string) {
	for _, one := range declared {
		spec := process.Spec{Command: one.Command, Env: one.Env, Dir: directory, User: one.User}
		if filepath.IsAbs(one.Cwd) {
			spec.Dir = one.Cwd
		} else if one.Cwd != "" {
			spec.Dir = filepath.Join(directory, one.Cwd)
		}
		if err := s.declare(one.Name, spec); err != nil {
			s.journal.Source(one.Name).Write(process.Stderr, []byte("sandboxd: "+err.Error()+"\n"))
		}
	}
}

// declare keeps a service without waiting for its first start. One of the same name is ended first.
func (s *Supervisor) declare(name string, spec process.Spec) error {
	defer s.lock(name)()
	s.end(name)
	kept, err := s.add(name, spec)
	if err == nil {
		go s.keep(kept, nil)
	}
	return err
}

// Start declares a service and starts it, or returns the process that an earlier call with the same key started. One of the same name is
// ended first. Where the first start fails there is no service.
func (s *Supervisor) Start(name, key string, spec process.Spec) (p *process.Process, replayed bool, err error) {
	// The key is looked up under the lock: a repeated request would else end the process that its first sending is about to start.
	defer s.lock(name)()
	if known := s.registry.ByKey(key); known != nil {
		return known, true, nil
	}
	s.end(name)
	kept, err := s.add(name, spec)
	if err != nil {
		return nil, false, err
	}
	p, replayed, err = s.registry.StartOnce(key, kept.spec)
	if err != nil || replayed {
		s.forget(kept)
		close(kept.done)
		return p, replayed, err
	}
	kept.run(p)
	go s.keep(kept, p)
	return p, false, nil
}

// End ends a service with its whole tree; false where there is none.
func (s *Supervisor) End(name string) bool {
	defer s.lock(name)()
	return s.end(name)
}

// lock keeps other starts and ends of that name out until the function it returns is called.
func (s *Supervisor) lock(name string) (unlock func()) {
	s.mu.Lock()
	held := s.changing[name]
	if held == nil {
		held = &nameLock{}
		s.changing[name] = held
	}
	held.users++
	s.mu.Unlock()
	held.Lock()
	return func() {
		held.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if held.users--; held.users == 0 {
			delete(s.changing, name)
		}
	}
}

// end is End for a caller that holds the name's lock.
func (s *Supervisor) end(name string) bool {
	s.mu.Lock()
	kept := s.services[name]
	delete(s.services, name)
	s.mu.Unlock()
	if kept == nil {
		return false
	}
	close(kept.over)
	if p := kept.running(); p != nil {
		p.KillTree()
	}
	<-kept.done
	return true
}

// add is for a caller that holds the name's lock and has ended the service of that name.
func (s *Supervisor) add(name string, spec process.Spec) (*service, error) {
	if !isName(name) {
		return nil, ErrName
	}
	source := s.journal.Source(name)
	spec.Tee, spec.OutputBytes, spec.Service = source.Write, outputBytes, true
	if spec.Tag == "" {
		spec.Tag = name
	}
	kept := &service{name: name, spec: spec, source: source, over: make(chan struct{}), done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.services) >= servicesMax {
		return nil, ErrTooMany
	}
	s.services[name] = kept
	return kept, nil
}

// forget lets a service run for the last time.
func (s *Supervisor) forget(kept *service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services[kept.name] == kept {
		delete(s.services, kept.name)
	}
}

func (s *Supervisor) isKept(kept *service) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.services[kept.name] == kept
}

// keep starts a service again and again until it is ended or the sandbox is. A process that it is given is waited for in any case, and
// killed where the service was ended before keep began.
func (s *Supervisor) keep(kept *service, p *process.Process) {
	defer close(kept.done)
	delay := s.delay
	for p != nil || s.isKept(kept) {
		began := time.Now()
		if p == nil {
			var err error
			if p, err = s.registry.Start(kept.spec); isClosing(err) {
				return
			} else if err != nil {
				kept.tell("cannot be started: %v; tried again in %s", err, delay)
			}
		}
		if p != nil {
			kept.run(p)
			// Ended between its start and this: End saw the run before it.
			if !s.isKept(kept) {
				p.KillTree()
			}
			exit, _ := p.Wait(context.Background())
			kept.source.Flush()
			if !s.isKept(kept) {
				return
			}
			if time.Since(began) >= runsWell {
				delay = s.delay
			}
			kept.tell("ended with exit code %d; started again in %s", exit.Code, delay)
			p = nil
		}
		if !kept.pause(delay) {
			return
		}
		delay = min(2*delay, delayMax)
	}
}

func isClosing(err error) bool {
	var failure *process.StartError
	return errors.As(err, &failure) && failure.Kind == process.StartClosing
}

func (k *service) run(p *process.Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = p
}

func (k *service) running() *process.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// pause waits before the next run; false when the service was ended meanwhile.
func (k *service) pause(delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-k.over:
		return false
	}
}

func (k *service) tell(format string, args ...any) {
	k.source.Write(process.Stderr, fmt.Appendf(nil, "sandboxd: "+format+"\n", args...))
}
