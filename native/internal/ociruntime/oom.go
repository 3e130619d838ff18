package ociruntime

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// oomScoreAdjMin makes the kernel choose a sandbox before a process of the engine when the whole machine runs out of memory. It adds the same
// to each, so that among sandboxes size decides.
const oomScoreAdjMin = 500

// oomScoreAdjSingly is for cgroups that lose one process when they run out: it makes that the sentry and not one of the processes it runs guests
// in. Those are charged with nearly all guest memory and have no adjustment, so that with 500 a guest that took 134 MB of 96 MiB and the runtime's
// share lost that one process, for no reason that it could see. 1000 adds the whole limit.
const oomScoreAdjSingly = 1000

const ownOOMFile = "/proc/self/oom_score_adj"

// oomScoreAdj is that of a sandbox. Everybody may raise what was inherited; to lower it is a right that this program may lack.
func oomScoreAdj(own int, killsSingly bool) int {
	if killsSingly {
		return max(oomScoreAdjSingly, own)
	}
	return max(oomScoreAdjMin, own)
}

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
func raiseSentry(pid, score int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
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
