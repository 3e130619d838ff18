import type { Attempt } from "../attempt.ts";
import type { Probe } from "../probe.ts";

const at = "prisoner";

function calls(...names: readonly string[]): Attempt[] {
  return names.map((name) => ({ at, do: "call", name }));
}

/** A call that every kernel grants. */
const granted = calls("getpid");

/** That a bug of the machine's kernel is out of reach: another kernel answers, and the calls such bugs were found in are refused. */
export const kernelProbes: readonly Probe[] = [
  {
    id: "kernel/own",
    tries: "talk to the machine's kernel",
    plan: ({ nodeKernel }) =>
      nodeKernel === undefined
        ? "the kernel of the node is not known: the Node cannot be read"
        : { attempts: [{ at, do: "kernel", value: nodeKernel }], controls: [{ at, do: "kernel" }] },
  },
  {
    id: "kernel/code",
    tries: "load code: modules, kexec, bpf",
    plan: () => ({ attempts: calls("init_module", "finit_module", "kexec_load", "bpf"), controls: granted }),
  },
  {
    id: "kernel/surface",
    tries: "use userfaultfd, perf events, io_uring, keyrings, the packet filter in a user namespace",
    plan: () => ({
      attempts: calls("userfaultfd", "perf_event_open", "io_uring_setup", "add_key", "netfilter"),
      controls: granted,
    }),
  },
  {
    id: "kernel/administration",
    tries: "reboot, set the clock, swap, accounting, quotas, the kernel's log, files by handle",
    plan: () => ({
      attempts: calls("reboot", "clock_settime", "swapon", "acct", "quotactl", "syslog", "open_by_handle"),
      controls: granted,
    }),
  },
];
