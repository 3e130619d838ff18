package ociruntime

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// oomScoreAdjMin makes the kernel choose a sandbox before a process of the engine when the whole machine runs out of memory.
const oomScoreAdjMin = 500

const ownOOMFile = "/proc/self/oom_score_adj"

// oomScoreAdj is that of a sandbox. Everybody may raise what was inherited; to lower it is a right that this program may lack.
func oomScoreAdj(own int) int { return max(oomScoreAdjMin, own) }

func ownOOMScoreAdj() int {
	text, err := os.ReadFile(ownOOMFile)
	if err != nil {
		return 0
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return own
}

// raiseSentry raises a sentry's score: runsc does it for a container that joins a sandbox, and not for its root. One that has ended needs none.
func raiseSentry(pid int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(oomScoreAdj(ownOOMScoreAdj()))), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// ForgoOOMProtection gives up that this process is spared when memory runs out, as the engine's others are: what it starts would inherit it.
func ForgoOOMProtection() error {
	if ownOOMScoreAdj() >= 0 {
		return nil
	}
	return os.WriteFile(ownOOMFile, []byte("0"), 0)
}
