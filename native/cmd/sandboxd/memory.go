package main

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gcPercent is how much may be allocated, in percent of what is alive, before garbage is collected. Little is alive here, and the
// runtime's least heap shrinks with this figure; below it nothing more is won.
const gcPercent = 50

// keepHeapSmall trades a little time for memory that every sandbox would take, unless whoever starts the daemon decides otherwise.
func keepHeapSmall() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// releaseMemory gives back what a busy time needed.
func releaseMemory() {
	debug.FreeOSMemory()
	releaseStartupPages()
}

// releaseStartupPages lets go of the program's own pages that only the start needed; what is still needed comes back from
// the page cache by itself. Half of the daemon's resident memory would be such pages, in every sandbox.
func releaseStartupPages() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		if start, size, ok := parseReadOnlyMapping(lines.Text(), self); ok {
			_ = unix.Madvise(unsafe.Slice((*byte)(start), size), unix.MADV_DONTNEED)
		}
	}
}

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
