package main

import (
	"errors"

	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// sizeSink is how a sandbox that waits gets its memory limit: a sink of gVisor's trace sessions is the one part of the sentry that takes values of
// others' making over the control socket. It traces nothing. Only root reaches that socket, and only before a program of the user's has run.
const sizeSink = "agent-sandbox-size"

func init() {
	seccheck.RegisterSink(seccheck.SinkDesc{Name: sizeSink, New: setSize})
}

type size struct{ seccheck.SinkDefaults }

func (size) Name() string { return sizeSink }

// setSize sets what /proc/meminfo, sysinfo and file systems in memory go by.
func setSize(config map[string]any, _ *fd.FD) (seccheck.Sink, error) {
	bytes, isNumber := config["memoryBytes"].(float64)
	if !isNumber || bytes < 1<<20 || bytes > 1<<52 {
		return nil, errors.New("memoryBytes is not a size")
	}
	usage.MinimumTotalMemoryBytes, usage.MaximumTotalMemoryBytes = uint64(bytes), uint64(bytes)
	tmpfs.SetTotalHostMem(uint64(bytes))
	return size{}, nil
}
