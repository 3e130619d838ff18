package ociruntime

// capabilities are the names the kernel knows.
var capabilities = map[string]bool{
	"CAP_CHOWN": true, "CAP_DAC_OVERRIDE": true, "CAP_DAC_READ_SEARCH": true, "CAP_FOWNER": true, "CAP_FSETID": true, "CAP_KILL": true,
	"CAP_SETGID": true, "CAP_SETUID": true, "CAP_SETPCAP": true, "CAP_LINUX_IMMUTABLE": true, "CAP_NET_BIND_SERVICE": true,
	"CAP_NET_BROADCAST": true, "CAP_NET_ADMIN": true, "CAP_NET_RAW": true, "CAP_IPC_LOCK": true, "CAP_IPC_OWNER": true, "CAP_SYS_MODULE": true,
	"CAP_SYS_RAWIO": true, "CAP_SYS_CHROOT": true, "CAP_SYS_PTRACE": true, "CAP_SYS_PACCT": true, "CAP_SYS_ADMIN": true, "CAP_SYS_BOOT": true,
	"CAP_SYS_NICE": true, "CAP_SYS_RESOURCE": true, "CAP_SYS_TIME": true, "CAP_SYS_TTY_CONFIG": true, "CAP_MKNOD": true, "CAP_LEASE": true,
	"CAP_AUDIT_WRITE": true, "CAP_AUDIT_CONTROL": true, "CAP_SETFCAP": true, "CAP_MAC_OVERRIDE": true, "CAP_MAC_ADMIN": true, "CAP_SYSLOG": true,
	"CAP_WAKE_ALARM": true, "CAP_BLOCK_SUSPEND": true, "CAP_AUDIT_READ": true, "CAP_PERFMON": true, "CAP_BPF": true, "CAP_CHECKPOINT_RESTORE": true,
}

// runcRefused are those that reach the machine itself when its kernel is the container's kernel. Inside gVisor they reach only the sentry.
var runcRefused = map[string]bool{
	"CAP_SYS_ADMIN": true, "CAP_SYS_MODULE": true, "CAP_SYS_RAWIO": true, "CAP_SYS_BOOT": true, "CAP_SYS_TIME": true, "CAP_MKNOD": true,
	"CAP_DAC_READ_SEARCH": true, "CAP_SYS_PTRACE": true, "CAP_MAC_ADMIN": true, "CAP_MAC_OVERRIDE": true, "CAP_BPF": true, "CAP_PERFMON": true,
	"CAP_SYSLOG": true, "CAP_SYS_PACCT": true, "CAP_SYS_TTY_CONFIG": true, "CAP_CHECKPOINT_RESTORE": true,
}

// seccompRefused are the system calls that a trusted container has no use for and that reach deep into the kernel.
var seccompRefused = []string{
	"acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module", "finit_module", "fsconfig", "fsmount", "fsopen",
	"fspick", "get_kernel_syms", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl",
	"lookup_dcookie", "mount", "mount_setattr", "move_mount", "move_pages", "nfsservctl", "open_by_handle_at", "open_tree", "perf_event_open",
	"pivot_root", "quotactl", "quotactl_fd", "reboot", "request_key", "setns", "settimeofday", "swapoff", "swapon", "sysfs", "umount", "umount2",
	"unshare", "uselib", "userfaultfd", "ustat", "vhangup", "vm86", "vm86old",
}
