package initd

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agent-sandbox.dev/native/internal/process"
)

// ExitRecord is what is left of a container: the contents of exit.json.
type ExitRecord struct {
	ExitCode   int       `json:"exitCode"`
	Signal     string    `json:"signal,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	OOMKilled  bool      `json:"oomKilled"`
	// Error says why the entrypoint could not be started.
	Error string `json:"error,omitempty"`
}

func exitRecord(p *process.Process, exit process.Exit, oomKillsBefore int) ExitRecord {
	record := ExitRecord{ExitCode: exit.Code, StartedAt: p.StartedAt.UTC(), FinishedAt: exit.FinishedAt.UTC()}
	if exit.Signal != 0 {
		record.Signal = process.SignalName(exit.Signal)
		record.OOMKilled = exit.Signal == syscall.SIGKILL && oomKills() > oomKillsBefore
	}
	return record
}

// Write puts the record in place in one step, so that a reader sees all of it or nothing.
func (r ExitRecord) Write(name string) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".exit-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(append(body, '\n'))
	if err == nil {
		err = temporary.Chmod(0o644)
	}
	if err == nil {
		err = temporary.Sync()
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}

// oomKills reads how often the kernel killed for memory in this control group; 0 where it does not say.
func oomKills() int {
	for _, name := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if count, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
				number, _ := strconv.Atoi(count)
				return number
			}
		}
	}
	return 0
}
