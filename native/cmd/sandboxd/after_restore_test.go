package main

import (
	"errors"
	"path/filepath"
	"testing"
)

func TestRunHookIsASuccessWithoutAHookAndBecomesTheOneThatIsThere(t *testing.T) {
	refused := errors.New("refused")
	var became string
	become := func(program string, _, _ []string) error {
		became = program
		return refused
	}
	if err := runHook(filepath.Join(t.TempDir(), "none"), become); err != nil || became != "" {
		t.Fatalf("without a hook: %v, became %q", err, became)
	}
	hook := t.TempDir()
	if err := runHook(hook, become); !errors.Is(err, refused) || became != hook {
		t.Fatalf("with a hook: %v, became %q", err, became)
	}
}

func TestRunOnceKnowsItsCommandsAlone(t *testing.T) {
	for _, args := range [][]string{nil, {"init"}, {setNameCommand}, {afterRestoreCommand, "x"}} {
		if known, err := runOnce(args); known || err != nil {
			t.Fatalf("%q: known %v, %v", args, known, err)
		}
	}
}
