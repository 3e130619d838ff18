package ociruntime

import (
	"context"
	"strconv"

	"agent-sandbox.dev/native/internal/hosterr"
)

// Size is what a sandbox says of its machine. It limits nothing: cgroups do.
type Size struct {
	// MemoryBytes is /proc/meminfo's MemTotal; 0: the machine's.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// CPUs is the number of processors; 0: the machine's.
	CPUs int `json:"cpus,omitempty"`
}

const (
	sizeMemoryMin, sizeMemoryMax = 1 << 20, 1 << 52
	sizeCPUsMax                  = 4096
)

// What runsc, whose main program is ours, goes by: annotations of a root container's configuration, and a sink of its trace sessions.
const (
	memoryAnnotation = "dev.agent-sandbox.memory-bytes"
	cpusAnnotation   = "dev.agent-sandbox.cpus"
	sizeSink         = "agent-sandbox-size"
)

func (s Size) check(r RunRequest) error {
	if r.Runtime != Runsc || r.SandboxID != "" {
		return hosterr.New(hosterr.InvalidArgument, "size: only a root container of runsc has one")
	}
	if s.CPUs < 0 || s.CPUs > sizeCPUsMax {
		return hosterr.New(hosterr.InvalidArgument, "size.cpus: %d is not within 0 to %d", s.CPUs, sizeCPUsMax)
	}
	if s.MemoryBytes == 0 {
		return nil
	}
	return checkMemory("size.memoryBytes", s.MemoryBytes)
}

func checkMemory(field string, bytes int64) error {
	if bytes < sizeMemoryMin || bytes > sizeMemoryMax {
		return hosterr.New(hosterr.InvalidArgument, "%s: %d is not within %d to %d", field, bytes, sizeMemoryMin, sizeMemoryMax)
	}
	return nil
}

// annotate writes the size where the sentry's boot reads it.
func (s *Size) annotate(annotations map[string]string) {
	if s == nil {
		return
	}
	for name, value := range map[string]int64{memoryAnnotation: s.MemoryBytes, cpusAnnotation: int64(s.CPUs)} {
		if value > 0 {
			annotations[name] = strconv.FormatInt(value, 10)
		}
	}
}

type (
	sentrySink struct {
		Name   string         `json:"name"`
		Config map[string]any `json:"config"`
	}
	sentrySession struct {
		Name  string       `json:"name"`
		Sinks []sentrySink `json:"sinks"`
	}
	sentrySessionArgs struct {
		Config sentrySession
		Force  bool
	}
)

// resize tells a sandbox that waited how much memory it has. A session of this name is the only one that there can be.
func (e *Engine) resize(ctx context.Context, id string, memoryBytes int64) error {
	sink := sentrySink{Name: sizeSink, Config: map[string]any{"memoryBytes": memoryBytes}}
	args := sentrySessionArgs{Config: sentrySession{Name: "Default", Sinks: []sentrySink{sink}}, Force: true}
	if err := callSentry(ctx, e.controlSocket(id), "containerManager.CreateTraceSession", args, nil); err != nil {
		return hosterr.New(hosterr.RuntimeFailed, "memory of sandbox %s: %v", id, err)
	}
	return nil
}
