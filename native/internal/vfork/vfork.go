// Package vfork makes a child that carries out system calls prepared for it, the last of which makes it another program.
//
// It is the middle of syscall.ForkExec with a seventh of the system calls: the kernel itself takes the runtime's signal handlers away,
// where syscall.ForkExec asks for each of the signals, and a failure is reported in memory that parent and child share, where
// syscall.ForkExec makes a pipe for it. In a gVisor sandbox, where every system call is dear, that is about one of the eight
// milliseconds that a short command takes.
//
// Invariant: the package imports nothing but unsafe. By the language's rule of initialisation it then comes before package syscall,
// whose initialisation raises the limit of open files, and OpenFiles is the limit that the daemon was started with.
package vfork

import "unsafe"

// Call is one system call of the child.
type Call struct {
	Number uintptr
	Args   [4]uintptr
}

// Failure is which call of a child failed, and why.
type Failure struct {
	// Index is that of the call in the child's list.
	Index int
	// Errno is zero where nothing failed.
	Errno uintptr
}

// Limit is what getrlimit returns.
type Limit struct{ Soft, Hard uint64 }

// OpenFiles is the limit of open files that this process was started with; zero where it could not be read.
var OpenFiles = readOpenFiles()

// rlimitNofile is RLIMIT_NOFILE.
const rlimitNofile = 7

func readOpenFiles() Limit {
	limit := new(Limit)
	if readLimit(rlimitNofile, limit) != 0 {
		return Limit{}
	}
	return *limit
}

// The flags of clone3 that matter here. With the first two the child borrows the parent's memory while the parent's thread sleeps,
// until the child has become another program or ended. The third resets every signal that is not ignored.
const (
	cloneVM           = 0x100
	cloneVfork        = 0x4000
	cloneClearSighand = 0x100000000
	signalChild       = 17
)

// request is struct clone_args in its first version, which every kernel with clone3 takes: eight words, of which two matter here.
type request [requestBytes / 8]uint64

const (
	requestBytes      = 64
	requestFlags      = 0
	requestExitSignal = 4
)

// attempt is everything that the assembly and the child read and write. It is in the heap, as whatever its calls point to must be:
// a stack may move, the heap does not.
type attempt struct {
	request request
	// first and last bound the calls: the first one, and where there are no more.
	first, last unsafe.Pointer
	// failed is the address of the call that did not succeed, errno its error.
	failed, errno uintptr
	// masks are the set of all signals, and the one that the thread had before.
	masks [2]uint64
}

// Start makes a child that carries out the calls one after the other, up to the first that fails; one of them must not return. It
// comes back when the child has become another program or has ended, and errno tells why there is no child. The child starts with the
// signal mask of the calling thread and with the default action for every signal that is not ignored.
//
// Preconditions: whatever the arguments point to is in the heap and kept alive by the caller.
func Start(calls []Call) (pid int, failure Failure, errno uintptr) {
	a := &attempt{
		request: request{requestFlags: cloneVM | cloneVfork | cloneClearSighand, requestExitSignal: signalChild},
		first:   unsafe.Pointer(&calls[0]), masks: [2]uint64{^uint64(0)},
	}
	// One past the end would point at another object as far as the garbage collector knows; the last call itself does not.
	a.last = unsafe.Pointer(&calls[len(calls)-1])
	result := start(a)
	if result < 0 {
		return 0, Failure{}, uintptr(-result)
	}
	if a.errno != 0 {
		index := (a.failed - uintptr(a.first)) / unsafe.Sizeof(Call{})
		return result, Failure{Index: int(index), Errno: a.errno}, 0
	}
	return result, Failure{}, 0
}

// start blocks the thread's signals, clones, and lets them through again on both sides. Between the two nothing of the runtime may
// run on this thread: the child would run a handler in the parent's memory, and the goroutine could go on in another thread. In
// assembly there is neither a place to be preempted at nor a stack frame, so that the child need not have a stack of its own.
func start(a *attempt) int

// readLimit is getrlimit.
func readLimit(resource int, limit *Limit) int
