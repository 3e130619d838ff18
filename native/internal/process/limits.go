package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limit is one POSIX resource limit.
type Limit struct {
	Name       string
	Soft, Hard uint64
}

// LimitCommand is the hidden command of this program that sets limits on itself and then becomes another program; a child
// cannot be limited from outside without it having run already.
const LimitCommand = "exec-with-limits"

var limitNumbers = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK, "nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "stack": unix.RLIMIT_STACK,
}

// CheckLimits refuses limits that cannot be set.
func CheckLimits(limits []Limit) error {
	for _, limit := range limits {
		if _, ok := limitNumbers[limit.Name]; !ok {
			return fmt.Errorf("unknown limit %q", limit.Name)
		}
		if limit.Soft > limit.Hard {
			return fmt.Errorf("limit %s: soft %d is above hard %d", limit.Name, limit.Soft, limit.Hard)
		}
	}
	return nil
}

// withLimits wraps argv so that the limits hold from the program's first instruction.
func withLimits(limits []Limit, program string, argv []string) []string {
	parts := make([]string, 0, len(limits))
	for _, limit := range limits {
		parts = append(parts, fmt.Sprintf("%s=%d:%d", limit.Name, limit.Soft, limit.Hard))
	}
	return append([]string{"sandboxd", LimitCommand, strings.Join(parts, ","), program}, argv...)
}

// ExecWithLimits is what LimitCommand runs: args are the limits, the program's path and its argv. It returns only on failure.
func ExecWithLimits(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("%s needs limits, a program and its arguments", LimitCommand)
	}
	for part := range strings.SplitSeq(args[0], ",") {
		name, bounds, _ := strings.Cut(part, "=")
		soft, hard, _ := strings.Cut(bounds, ":")
		number, known := limitNumbers[name]
		softValue, softErr := strconv.ParseUint(soft, 10, 64)
		hardValue, hardErr := strconv.ParseUint(hard, 10, 64)
		if !known || softErr != nil || hardErr != nil {
			return fmt.Errorf("limit %q is not name=soft:hard", part)
		}
		if err := syscall.Setrlimit(number, &syscall.Rlimit{Cur: softValue, Max: hardValue}); err != nil {
			return fmt.Errorf("set limit %s: %w", name, err)
		}
	}
	return fmt.Errorf("exec %s: %w", args[1], syscall.Exec(args[1], args[2:], os.Environ()))
}
