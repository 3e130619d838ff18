// Command scenarios carries out test/scenarios/*.yaml on the engine of AGENT_SANDBOX_DATA_DIR.
//
//	go run ./internal/scenarios [scenario ...]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	sandbox "agent-sandbox.dev/sdk"
	"agent-sandbox.dev/sdk/errorcode"
	"go.yaml.in/yaml/v3"
)

// scenarioLimit is longer than the slowest scenario takes on a busy machine.
const scenarioLimit = 4 * time.Minute

type step = map[string]any

type scenario struct {
	Name         string
	Tags         []string
	Sandbox      string
	ThroughProxy bool `yaml:"throughProxy"`
	Volumes      []any
	Steps        []step
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(names []string) error {
	if os.Getenv("AGENT_SANDBOX_DATA_DIR") == "" {
		return fmt.Errorf("AGENT_SANDBOX_DATA_DIR must name the data directory of a running engine")
	}
	scenarios, err := load(names)
	if err != nil {
		return err
	}
	engine, err := sandbox.FindEngine(sandbox.EngineOptions{})
	if err != nil {
		return err
	}
	keeper := newWorld(engine)
	defer keeper.close()
	if _, err := keeper.create(context.Background(), step{}); err != nil {
		return err
	}
	failed := 0
	for _, one := range scenarios {
		begun, outcome := time.Now(), "ok"
		if err := runOne(one, engine, keeper.boxes["box"]); err != nil {
			failed++
			outcome = "FAILED " + err.Error()
		}
		fmt.Printf("go %s: %s (%.1f s)\n", one.Name, outcome, time.Since(begun).Seconds())
	}
	fmt.Printf("%d passed, %d failed\n", len(scenarios)-failed, failed)
	if failed > 0 {
		return fmt.Errorf("%d scenarios failed", failed)
	}
	return nil
}

// load reads the scenarios of those names; all where none is named.
func load(names []string) ([]scenario, error) {
	files, err := filepath.Glob(filepath.Join("..", "..", "test", "scenarios", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no scenarios found; run this in sdks/go")
	}
	var chosen []scenario
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var some []scenario
		if err := yaml.Unmarshal(content, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, one := range some {
			if len(names) == 0 || slices.Contains(names, one.Name) {
				chosen = append(chosen, one)
			}
		}
	}
	if len(names) > 0 && len(chosen) != len(names) {
		return nil, fmt.Errorf("found %d of the scenarios %v", len(chosen), names)
	}
	return chosen, nil
}

func runOne(one scenario, engine *sandbox.Engine, shared *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), scenarioLimit)
	defer cancel()
	world := newWorld(engine)
	defer world.close()
	place := one.Sandbox
	if place == "" && slices.Contains(one.Tags, "data") {
		place = "shared"
	}
	switch place {
	case "shared":
		world.keep("box", shared)
	case "own":
		if _, err := world.create(ctx, step{"throughProxy": one.ThroughProxy, "volumes": one.Volumes}); err != nil {
			return err
		}
	}
	for _, written := range one.Steps {
		if err := world.take(ctx, written); err != nil {
			return err
		}
	}
	return nil
}

// take carries out one step; an error says how it did not do what is written.
func (w *world) take(ctx context.Context, written step) error {
	current := substitute(written, w.kept).(step)
	name := current["do"].(string)
	verb, known := verbs[name]
	if !known {
		return fmt.Errorf("no verb %s", name)
	}
	result, err := verb(w, ctx, current)
	codes := texts(current["error"])
	if err != nil {
		if slices.Contains(codes, string(sandbox.CodeOf(err))) {
			var failure *sandbox.Error
			errors.As(err, &failure)
			return asError(mismatch(current["failure"], map[string]any{"limit": failure.Limit, "message": failure.Message}, name))
		}
		return fmt.Errorf("%s failed with %s: %w", name, codeName(sandbox.CodeOf(err)), err)
	}
	if len(codes) > 0 && current["orSucceeds"] != true {
		return fmt.Errorf("%s succeeded with %v, not failed with %v", name, result, codes)
	}
	return asError(mismatch(current["expect"], result, name))
}

func asError(difference string) error {
	if difference == "" {
		return nil
	}
	return errors.New(difference)
}

func codeName(code errorcode.Code) string {
	if code == "" {
		return "no code"
	}
	return string(code)
}
