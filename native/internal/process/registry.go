package process

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"sync"
	"time"
)

// finishedMax and finishedBytesMax bound what is remembered of processes that have ended; the oldest are forgotten first.
const (
	finishedMax      = 256
	finishedBytesMax = 32 << 20
)

// cancelledMax bounds the keys that are remembered because their start was cancelled before it came; the oldest are forgotten
// first. A start overtaken by its cancellation comes moments later, so that a thousand span more than any such moment.
const cancelledMax = 1024

// Entrypoint is the id of the container's own process.
const Entrypoint = "entrypoint"

// Registry starts processes and remembers them.
//
// Bound: runningMax processes at once, beyond which Start fails; ended ones as finishedMax and finishedBytesMax say.
type Registry struct {
	reaper      *Reaper
	environment []string
	runningMax  int
	bornAt      time.Time
	null        *os.File
	outputs     outputWatch

	mu       sync.Mutex
	byID     map[string]*Process
	byNumber map[int32]*Process
	byKey    map[string]*keyed
	keyOf    map[string]string
	finished []*Process
	// cancelled are the keys that no process may be started under, oldest first.
	cancelled []string
	running   int
	// serving are those of the running processes that are services.
	serving int
	last    int32
	closing bool
}

// keyed is the process, or the failure, that an idempotency key stands for.
type keyed struct {
	ready   chan struct{}
	process *Process
	err     error
}

// NewRegistry makes a registry whose processes inherit environment.
func NewRegistry(reaper *Reaper, environment []string, runningMax int) (*Registry, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &Registry{
		reaper: reaper, environment: environment, runningMax: runningMax, bornAt: time.Now(), null: null,
		byID: map[string]*Process{}, byNumber: map[int32]*Process{}, byKey: map[string]*keyed{}, keyOf: map[string]string{},
	}, nil
}

// Get finds a process by id; nil when it is unknown.
func (r *Registry) Get(id string) *Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// GetNumber finds a process by the number the published service gave it; nil when it is unknown.
func (r *Registry) GetNumber(number int32) *Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byNumber[number]
}

// List returns every process, oldest first.
func (r *Registry) List() []*Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Process, 0, len(r.byID))
	for _, p := range r.byID {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Process) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Running counts the processes that run, without the entrypoint and services: these wait for callers, and a sandbox may sleep while they do.
func (r *Registry) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running - r.serving
}

// StartOnce starts a process, or returns the one an earlier call with the same key started. An empty key is no key.
func (r *Registry) StartOnce(key string, spec Spec) (p *Process, replayed bool, err error) {
	if key == "" {
		p, err = r.Start(spec)
		return p, false, err
	}
	r.mu.Lock()
	if earlier, ok := r.byKey[key]; ok {
		r.mu.Unlock()
		<-earlier.ready
		return earlier.process, true, earlier.err
	}
	mine := &keyed{ready: make(chan struct{})}
	r.byKey[key] = mine
	r.mu.Unlock()

	// What has a key is remembered, so that a repeated request finds the result.
	spec.Forget = false
	mine.process, mine.err = r.Start(spec)
	r.mu.Lock()
	if mine.err != nil {
		delete(r.byKey, key)
	} else {
		r.keyOf[mine.process.ID] = key
	}
	r.mu.Unlock()
	close(mine.ready)
	return mine.process, false, mine.err
}

var errOutlived = &StartError{StartCancelled, errors.New("the command may have run in the container that ended; it is not started again")}

// StartAgain is StartOnce for a request whose first sending, so long ago, may have arrived. A key that is unknown to a registry that is
// younger than that may have been known to the one before it, with whose container the command ended: it is refused.
func (r *Registry) StartAgain(key string, spec Spec, firstSentAgo time.Duration) (p *Process, replayed bool, err error) {
	r.mu.Lock()
	_, known := r.byKey[key]
	r.mu.Unlock()
	if !known && firstSentAgo > time.Since(r.bornAt) {
		return nil, false, errOutlived
	}
	return r.StartOnce(key, spec)
}

// ByKey finds the process that was started under a key, waiting for its start; nil when there is none.
func (r *Registry) ByKey(key string) *Process {
	r.mu.Lock()
	earlier, ok := r.byKey[key]
	r.mu.Unlock()
	if !ok {
		return nil
	}
	<-earlier.ready
	return earlier.process
}

var errCancelled = &StartError{StartCancelled, errors.New("the start was cancelled before it began")}

// Cancel ends the process that was started under a key and returns its id when the whole tree is gone. Where there is none, one that
// would be started under the key later is refused, and the id is empty.
func (r *Registry) Cancel(key string) string {
	r.mu.Lock()
	entry, ok := r.byKey[key]
	if !ok {
		refused := &keyed{ready: make(chan struct{}), err: errCancelled}
		close(refused.ready)
		r.byKey[key] = refused
		r.cancelled = append(r.cancelled, key)
		if len(r.cancelled) > cancelledMax {
			delete(r.byKey, r.cancelled[0])
			r.cancelled = r.cancelled[1:]
		}
	}
	r.mu.Unlock()
	if !ok {
		return ""
	}
	<-entry.ready
	if entry.process == nil {
		return ""
	}
	entry.process.KillTree()
	return entry.process.ID
}

// reserve gives out the next number, if one more process may run.
func (r *Registry) reserve(entrypoint bool) (int32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if entrypoint {
		return 0, nil
	}
	r.last++
	if r.closing {
		return 0, &StartError{StartClosing, errors.New("sandboxd is shutting down")}
	}
	if r.running >= r.runningMax {
		return 0, &StartError{StartExhausted, errors.New("too many processes are running; wait for one to end")}
	}
	r.running++
	return r.last, nil
}

func (r *Registry) release(entrypoint bool) {
	if entrypoint {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
}

func (r *Registry) add(p *Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[p.ID] = p
	if p.Spec.Service {
		r.serving++
	}
	if p.Number > 0 {
		r.byNumber[p.Number] = p
	}
}

// ended forgets a process, or keeps it and forgets older ones.
func (r *Registry) ended(p *Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !p.Spec.Entrypoint {
		r.running--
	}
	if p.Spec.Service {
		r.serving--
	}
	if p.Spec.Forget {
		r.forget(p)
		return
	}
	r.finished = append(r.finished, p)
	total := 0
	for _, one := range r.finished {
		total += one.Log.Bytes()
	}
	for len(r.finished) > 1 && (len(r.finished) > finishedMax || total > finishedBytesMax) {
		total -= r.finished[0].Log.Bytes()
		r.forget(r.finished[0])
		r.finished[0] = nil
		r.finished = r.finished[1:]
	}
}

func (r *Registry) forget(p *Process) {
	delete(r.byID, p.ID)
	delete(r.byNumber, p.Number)
	if key, ok := r.keyOf[p.ID]; ok {
		delete(r.keyOf, p.ID)
		delete(r.byKey, key)
	}
}

// Shutdown refuses new processes and ends the running ones: the end is asked for, then forced after the grace period.
func (r *Registry) Shutdown(signal func(*Process), grace <-chan time.Time) {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	live := slices.DeleteFunc(r.List(), func(p *Process) bool { _, ended := p.Exit(); return ended || p.Spec.Entrypoint })
	for _, p := range live {
		signal(p)
	}
	for _, p := range live {
		select {
		case <-p.Done():
		case <-grace:
			grace = closedTimer
			p.KillTree()
		}
	}
}

var closedTimer = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// NewID makes an id for a process.
func NewID() string {
	var random [8]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

// Started counts the processes ever started, failures included.
func (r *Registry) Started() int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
