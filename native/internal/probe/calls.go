package probe

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// badFlag is a flag that no version of these calls knows: a kernel that gets to read it has passed the check that should have stopped it.
const badFlag = 1 << 30

// calls are system calls that reach deep into a kernel. Each is made so that it fails at the latest by its arguments.
var calls = map[string]func() error{
	"userfaultfd": func() error { return closed(unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)) },
	"bpf": func() error {
		return closed(unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&arrayMap)), unsafe.Sizeof(arrayMap)))
	},
	"perf_event_open": perfEventOpen,
	"netfilter":       netfilter,
	"io_uring_setup":  ioUringSetup,
	"add_key":         addKey,
	"init_module": func() error {
		return errno(unix.Syscall(unix.SYS_INIT_MODULE, uintptr(unsafe.Pointer(&nothing[0])), 0, uintptr(unsafe.Pointer(&nothing[0]))))
	},
	"finit_module": func() error {
		return errno(unix.Syscall(unix.SYS_FINIT_MODULE, ^uintptr(0), uintptr(unsafe.Pointer(&nothing[0])), badFlag))
	},
	"kexec_load": func() error { return errno(unix.Syscall6(unix.SYS_KEXEC_LOAD, 0, 0, 0, badFlag, 0, 0)) },
	"reboot":     func() error { return errno(unix.Syscall6(unix.SYS_REBOOT, 0, 0, 0, 0, 0, 0)) },
	"swapon":     func() error { return errno(unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(&nowhere[0])), 0, 0)) },
	"acct":       func() error { return errno(unix.Syscall(unix.SYS_ACCT, uintptr(unsafe.Pointer(&nowhere[0])), 0, 0)) },
	"quotactl": func() error {
		return errno(unix.Syscall6(unix.SYS_QUOTACTL, 0x800008, uintptr(unsafe.Pointer(&nowhere[0])), 0, 0, 0, 0))
	},
	"open_by_handle": openByHandle,
	"syslog":         func() error { return errno(unix.Syscall(unix.SYS_SYSLOG, 8, 0, badFlag)) },
	"clock_settime": func() error {
		return errno(unix.Syscall(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, uintptr(unsafe.Pointer(&badTime)), 0))
	},
	"getpid": func() error { return errno(unix.Syscall(unix.SYS_GETPID, 0, 0, 0)) },
}

var (
	nothing  = [1]byte{}
	nowhere  = append([]byte("/sandbox-probe/nowhere"), 0)
	badTime  = unix.Timespec{Sec: -1, Nsec: -1}
	arrayMap = struct{ kind, keySize, valueSize, entries uint32 }{2, 4, 4, 1}
)

// makeCall makes the call Name. Through means that the kernel has it and looked at the arguments.
func makeCall(a Attempt) Outcome {
	call, ok := calls[a.Name]
	if !ok {
		return Outcome{Unknown: true, Detail: fmt.Sprintf("no call %q", a.Name)}
	}
	err := call()
	switch {
	case err == nil:
		return through("%s succeeded", a.Name)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		return refused(err)
	default:
		return through("%s was looked at: %v", a.Name, err)
	}
}

func errno(_, _ uintptr, err unix.Errno) error {
	if err == 0 {
		return nil
	}
	return err
}

func closed(fd, _ uintptr, err unix.Errno) error {
	if err != 0 {
		return err
	}
	return unix.Close(int(fd))
}

func perfEventOpen() error {
	attributes := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_DUMMY}
	fd, err := unix.PerfEventOpen(&attributes, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	// A counter in software needs no device: who misses one has no counters at all.
	if errors.Is(err, unix.ENODEV) {
		return unix.ENOSYS
	}
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// netfilter makes a user namespace with a network of its own and opens the packet filter there, which ordinary users have no other way to.
func netfilter() error {
	attributes := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"sandbox-probe", NetfilterCommand}, &syscall.ProcAttr{Sys: attributes})
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	if status.ExitStatus() != 0 {
		return unix.EPERM
	}
	return nil
}

// NetfilterCommand is the argument that makes this program open the packet filter and end.
const NetfilterCommand = "netfilter"

// OpenNetfilter opens the packet filter of this network namespace.
func OpenNetfilter() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func ioUringSetup() error {
	var parameters [120]byte
	return closed(unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&parameters[0])), 0))
}

// addKey asks for a key of a type that does not exist, which is found out behind the permission.
func addKey() error {
	_, err := unix.AddKey("sandbox-probe", "verify", nil, unix.KEY_SPEC_PROCESS_KEYRING)
	return err
}

func openByHandle() error {
	fd, err := unix.OpenByHandleAt(unix.AT_FDCWD, unix.NewFileHandle(1, make([]byte, 8)), unix.O_RDONLY)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// hasCapability finds capability Number in the effective or the bounding set.
func hasCapability(a Attempt) Outcome {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return refused(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "CapEff" && name != "CapBnd" {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && set>>uint(a.Number)&1 == 1 {
			return through("%s has %s", name, a.Name)
		}
	}
	return refusedBecause("no %s", a.Name)
}

// seesKernel compares the kernel's own words with Value, which is how those of another begin; without Value it is enough that the kernel says something.
func seesKernel(a Attempt) Outcome {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return refused(err)
	}
	release := unix.ByteSliceToString(name.Release[:]) + " " + unix.ByteSliceToString(name.Version[:])
	if strings.HasPrefix(release, a.Value) {
		return through("the kernel is %s", release)
	}
	return refusedBecause("the kernel is %s", release)
}
