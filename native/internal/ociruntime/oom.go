package ociruntime

import (
	"os"
	"strconv"
	"strings"
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

// ForgoOOMProtection gives up that this process is spared when memory runs out, as the engine's others are: what it starts would inherit it.
func ForgoOOMProtection() error {
	if ownOOMScoreAdj() >= 0 {
		return nil
	}
	return os.WriteFile(ownOOMFile, []byte("0"), 0)
}
