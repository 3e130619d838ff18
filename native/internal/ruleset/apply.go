package ruleset

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"agent-sandbox.dev/native/internal/hosterr"
	"agent-sandbox.dev/native/internal/systemtool"
)

// Run makes one transaction; on failure what was in force stays.
func Run(ctx context.Context, commands string) error { return nft(ctx, commands, "-f", "-") }

// Remove deletes the table.
func Remove(ctx context.Context, table string) error {
	return nft(ctx, fmt.Sprintf("table inet %s\ndelete table inet %s\n", table, table), "-f", "-")
}

// Exists reports whether the table is there.
func Exists(ctx context.Context, table string) (bool, error) {
	cmd, err := systemtool.Command(ctx, "nft", "list", "tables", "inet")
	if err != nil {
		return false, err
	}
	output, err := cmd.Output()
	if err != nil {
		return false, err
	}
	for _, line := range strings.Split(string(output), "\n") {
		if line == "table inet "+table {
			return true, nil
		}
	}
	return false, nil
}

func nft(ctx context.Context, input string, args ...string) error {
	cmd, err := systemtool.Command(ctx, "nft", args...)
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(input)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	commits := theCommits()
	inForce, err := commits.start(cmd)
	if err != nil {
		return hosterr.New(hosterr.RulesRejected, "nft: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer commits.forget(cmd)
	select {
	case <-inForce:
		return nil
	case err := <-ended:
		if err != nil {
			return hosterr.New(hosterr.RulesRejected, "nft: %s: %v", strings.TrimSpace(output.String()), err)
		}
		return nil
	}
}
