package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const (
	// setNameCommand gives the sandbox the name that follows; it needs CAP_SYS_ADMIN.
	setNameCommand = "set-name"
	// afterRestoreCommand runs the container's hook in a sandbox that goes on from the memory of another one.
	afterRestoreCommand = "after-restore"
	// afterRestoreHook is the program that reseeds what a container must not share with the one that it was saved of.
	afterRestoreHook = "/etc/agent-sandbox/after-restore"
)

// runHook becomes the hook. One that is not there is a success.
func runHook(hook string, become func(string, []string, []string) error) error {
	if _, err := os.Stat(hook); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s: %w", hook, become(hook, []string{hook}, os.Environ()))
}

// runOnce carries out a command of one step; false where the arguments name none.
func runOnce(args []string) (bool, error) {
	switch {
	case len(args) == 2 && args[0] == setNameCommand:
		return true, syscall.Sethostname([]byte(args[1]))
	case len(args) == 1 && args[0] == afterRestoreCommand:
		return true, runHook(afterRestoreHook, syscall.Exec)
	}
	return false, nil
}
