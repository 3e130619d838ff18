// Command sandbox-probe tries, from wherever it runs, what a sandbox must not be able to do, and says what it got. `agent-sandbox verify` starts it
// inside sandboxes for the attempts and on the machine for their controls.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"agent-sandbox.dev/native/internal/probe"
)

// inputMax bounds what is read; a whole run has some hundred attempts of a hundred bytes each.
const inputMax = 1 << 20

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox-probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "try":
		return try(os.Stdin, os.Stdout)
	// The name is for those who look at command lines.
	case len(args) == 2 && args[0] == "hold":
		return hold(args[1], os.Stdin, os.Stdout)
	case len(args) == 1 && args[0] == probe.NetfilterCommand:
		return probe.OpenNetfilter()
	case len(args) == 3 && args[0] == probe.OpenFilesCommand:
		return probe.OpenFiles(args[1], args[2], os.Stdin, os.Stdout)
	default:
		return fmt.Errorf("usage: sandbox-probe try | hold NAME, with JSON on standard input")
	}
}

func try(in io.Reader, out io.Writer) error {
	var attempts []probe.Attempt
	if err := json.NewDecoder(io.LimitReader(in, inputMax)).Decode(&attempts); err != nil {
		return fmt.Errorf("attempts: %w", err)
	}
	return json.NewEncoder(out).Encode(probe.TryAll(attempts))
}

func hold(name string, in io.Reader, out io.Writer) error {
	var marks probe.Marks
	if err := json.NewDecoder(io.LimitReader(in, inputMax)).Decode(&marks); err != nil {
		return fmt.Errorf("marks: %w", err)
	}
	marks.Name = name
	return probe.Hold(marks, out)
}
