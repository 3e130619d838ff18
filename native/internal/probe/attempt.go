// Package probe makes single attempts to leave a sandbox. No attempt changes anything outside the place it runs in, also where it succeeds: what would be
// written is only opened, what would be loaded is empty, what is mounted is taken away again.
package probe

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Attempt is one thing to try.
type Attempt struct {
	// Do names the way; one of the keys of ways.
	Do string `json:"do"`
	// Network is tcp or udp.
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	// Source is the sender's address that a forged packet carries.
	Source string `json:"source,omitempty"`
	Port   int    `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`
	Name   string `json:"name,omitempty"`
	// Value is what Name is compared with.
	Value string `json:"value,omitempty"`
	// Number is a key, a capability, a count or a number of bytes, as the way has it.
	Number int64 `json:"number,omitempty"`
	// HoldMs is how long what was taken is kept before it is given back.
	HoldMs int64 `json:"holdMs,omitempty"`
}

// Outcome says whether an attempt got through, and what was seen.
type Outcome struct {
	Through bool   `json:"through"`
	Detail  string `json:"detail"`
	// Unknown: it was cut short and has shown nothing.
	Unknown bool `json:"unknown,omitempty"`
}

// ways are all there are; each returns when it knows, after its own bound at the latest.
var ways = map[string]func(Attempt) Outcome{
	"connect":     connect,
	"open-port":   openPort,
	"dns":         askResolver,
	"ping":        ping,
	"forge":       forge,
	"read":        readPath,
	"write":       writePath,
	"socket":      dialSocket,
	"find":        findName,
	"plant":       plant,
	"device":      makeDevice,
	"descriptors": walkDescriptors,
	"mount":       mountFilesystem,
	"capability":  hasCapability,
	"call":        makeCall,
	"kernel":      seesKernel,
	"process":     findProcess,
	"namespace":   sharesNamespace,
	"segment":     findSegment,
	"memory":      takeMemory,
	"disk":        fillDisk,
	"processes":   forkMany,
	"files":       openMany,
	"log":         floodLog,
}

// atOnceMax bounds the attempts under way; most of them wait for an answer that does not come.
const atOnceMax = 64

// networkWait is long enough for a machine's own links when it is busy; a dropped packet costs all of it.
const networkWait = 2 * time.Second

// TryAll makes every attempt and answers in their order.
func TryAll(attempts []Attempt) []Outcome {
	outcomes := make([]Outcome, len(attempts))
	free := make(chan struct{}, atOnceMax)
	var all sync.WaitGroup
	for index, attempt := range attempts {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			outcomes[index] = try(attempt)
		})
	}
	all.Wait()
	return outcomes
}

func try(a Attempt) Outcome {
	way, ok := ways[a.Do]
	if !ok {
		return Outcome{Unknown: true, Detail: fmt.Sprintf("no way %q", a.Do)}
	}
	return way(a)
}

func through(format string, args ...any) Outcome {
	return Outcome{Through: true, Detail: fmt.Sprintf(format, args...)}
}

func refused(err error) Outcome { return Outcome{Detail: err.Error()} }

func refusedBecause(format string, args ...any) Outcome {
	return Outcome{Detail: fmt.Sprintf(format, args...)}
}

// scratch is a directory of the attempt's own, gone afterwards.
func scratch(use func(dir string) Outcome) Outcome {
	dir, err := os.MkdirTemp("", "sandbox-probe-")
	if err != nil {
		return refused(err)
	}
	defer os.RemoveAll(dir)
	return use(dir)
}
