package main

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gcPercent is how much may be allocated, in percent of what is alive, before garbage is collected. Little is alive here, and the
// runtime's least heap shrinks with this figure; below it hardly more is won, and a heap with much alive costs time. From 32 down the
// start itself has garbage collected, for which three quarters of a megabyte of the program come into memory.
const gcPercent = 36

// processorsMax is how many threads may run the daemon's code at once. Each keeps free memory of every size to itself: on a machine of
// 64 processors that would be a quarter of all that is resident, while one sandbox seldom keeps even two of them busy.
const processorsMax = 4

// stayLean trades a little time for memory that every sandbox would take, unless the environment sets another figure.
func stayLean() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) > processorsMax {
		runtime.GOMAXPROCS(processorsMax)
	}
}

// releaseMemory gives back what a busy time needed.
func releaseMemory() {
	debug.FreeOSMemory()
	releaseStartupPages()
}

// releaseStartupPages lets go of the program's own pages that only the start, or the first answer, needed; what is still needed
// comes back from the page cache by itself. Half of the daemon's resident memory would be such pages, in every sandbox.
func releaseStartupPages() {
	for _, pages := range programPages() {
		_ = unix.Madvise(pages, unix.MADV_DONTNEED)
	}
}

// programPages are the unwritable mappings of the program. They never change, and reading them takes code that nothing else needs.
var programPages = sync.OnceValue(func() [][]byte {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	var found [][]byte
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		if start, size, ok := parseReadOnlyMapping(lines.Text(), self); ok {
			found = append(found, unsafe.Slice((*byte)(start), size))
		}
	}
	return found
})

// parseReadOnlyMapping reads a line of /proc/self/maps and accepts only unwritable mappings of the named file: dropping a
// writable one would lose what was written to it.
func parseReadOnlyMapping(line, file string) (start unsafe.Pointer, size uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[5] != file || len(fields[1]) != 4 || fields[1][1] == 'w' {
		return nil, 0, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	low, lowErr := strconv.ParseUint(from, 16, 64)
	high, highErr := strconv.ParseUint(to, 16, 64)
	if lowErr != nil || highErr != nil || high <= low {
		return nil, 0, false
	}
	address := uintptr(low)
	return *(*unsafe.Pointer)(unsafe.Pointer(&address)), uintptr(high - low), true
}
