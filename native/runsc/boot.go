package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Annotations of a root container's configuration.
const (
	memoryAnnotation = "dev.agent-sandbox.memory-bytes"
	cpusAnnotation   = "dev.agent-sandbox.cpus"
)

// bootArgs adds what the configuration says to the arguments of the sentry's boot, where the last of two equal flags counts. The sentry starts
// itself again while it gives up its rights, with arguments that it has read before and without a view of the configuration.
func bootArgs(args []string) []string {
	at := slices.Index(args, "boot")
	if at < 0 || len(args) < at+3 {
		return args
	}
	bundle, found := strings.CutPrefix(args[at+1], "--bundle=")
	if !found {
		return args
	}
	sizes := sizesIn(filepath.Join(bundle, "config.json"))
	// The container's id comes last.
	last := len(args) - 1
	return slices.Concat(args[:last], sizes, args[last:])
}

// sizesIn are the flags that a configuration's annotations stand for.
func sizesIn(config string) []string {
	text, err := os.ReadFile(config)
	if err != nil {
		return nil
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil
	}
	var flags []string
	for _, size := range []struct {
		annotation string
		flags      []string
	}{
		// The second is what file systems in memory take their default size from.
		{memoryAnnotation, []string{"--total-memory", "--total-host-memory"}},
		{cpusAnnotation, []string{"--cpu-num"}},
	} {
		value, err := strconv.ParseUint(spec.Annotations[size.annotation], 10, 63)
		if err != nil || value == 0 {
			continue
		}
		for _, flag := range size.flags {
			flags = append(flags, flag+"="+strconv.FormatUint(value, 10))
		}
	}
	return flags
}
