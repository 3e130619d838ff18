package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killMembers kills the processes of a group. Each is held by a descriptor before it is seen to be in the group a second time: a number that changed
// hands in between is not there again, or is that of another member.
func killMembers(dir string) {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range members(dir) {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[pid] = fd
		}
	}
	if len(held) == 0 {
		return
	}
	for _, pid := range members(dir) {
		if fd, isHeld := held[pid]; isHeld {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
}

// members are the processes of a group, this one apart.
func members(dir string) []int {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var list []int
	for _, word := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 && pid != os.Getpid() {
			list = append(list, pid)
		}
	}
	return list
}

// membersBelow are the processes of a group and of those that runc made below it.
func membersBelow(dir string) []int {
	list := members(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return list
	}
	for _, entry := range entries {
		if entry.IsDir() {
			list = append(list, membersBelow(filepath.Join(dir, entry.Name()))...)
		}
	}
	return list
}
