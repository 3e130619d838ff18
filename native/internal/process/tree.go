package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// marker is the variable every started process finds its own id in. Descendants inherit it, so that one that left its
// group and lost its parent is still recognised as part of the tree.
const marker = "AGENT_SANDBOX_PROCESS_ID"

// killRoundsMax bounds how often a tree is looked for again while it forks faster than it dies.
const killRoundsMax = 50

// killRoundPause lets killed processes disappear before the next look.
const killRoundPause = 4 * time.Millisecond

// relation is what /proc tells of one process's place in the family.
type relation struct{ pid, parent, group, session int }

// tree finds the living processes that belong to a leader. When the leader itself is gone its number may name somebody
// else, so that only the marker counts then.
func tree(leader int, leaderAlive bool, id string) []int {
	all := relations()
	member := map[int]bool{leader: leaderAlive}
	for _, one := range all {
		if leaderAlive && (one.group == leader || one.session == leader) || hasMarker(one.pid, id) {
			member[one.pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, one := range all {
			if !member[one.pid] && member[one.parent] {
				member[one.pid], grown = true, true
			}
		}
	}
	found := make([]int, 0, len(member))
	for _, one := range all {
		if member[one.pid] {
			found = append(found, one.pid)
		}
	}
	return found
}

// relations lists the living processes other than this one.
func relations() []relation {
	directory, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer directory.Close()
	names, _ := directory.Readdirnames(-1)
	found := make([]relation, 0, len(names))
	self := os.Getpid()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		if one, ok := readRelation(pid); ok {
			found = append(found, one)
		}
	}
	return found
}

func readRelation(pid int) (relation, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return relation{}, false
	}
	return parseRelation(pid, string(stat))
}

// parseRelation reads "pid (name) state ppid pgrp session ..."; the name may hold anything, also parentheses.
func parseRelation(pid int, stat string) (relation, bool) {
	_, rest, ok := strings.Cut(stat[max(strings.LastIndexByte(stat, ')'), 0):], " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
		return relation{}, false
	}
	one := relation{pid: pid}
	one.parent, _ = strconv.Atoi(fields[1])
	one.group, _ = strconv.Atoi(fields[2])
	one.session, _ = strconv.Atoi(fields[3])
	return one, true
}

func hasMarker(pid int, id string) bool {
	environment, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	entry := []byte(marker + "=" + id)
	for line := range bytes.SplitSeq(environment, []byte{0}) {
		if bytes.Equal(line, entry) {
			return true
		}
	}
	return false
}

// signalTree signals every member once and returns how many took it.
func signalTree(pids []int, signal syscall.Signal) int {
	count := 0
	for _, pid := range pids {
		if syscall.Kill(pid, signal) == nil {
			count++
		}
	}
	return count
}
