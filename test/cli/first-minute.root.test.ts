import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { rootDir } from "../../scripts/checkout.ts";

// What goes wrong in the first minute: the real command in a namespace that lacks something. Each mistake gives one sentence and an exit code,
// and leaves nothing behind.

const command = path.join(rootDir, "agent-sandbox");
const work = mkdtempSync("/var/tmp/as-minute-test-");
const dataDir = `${work}-data`;
const free = ["--listen", "127.0.0.1:0", "--router-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
const taken = net.createServer();
let takenPort = 0;

beforeAll(async () => {
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  takenPort = (taken.address() as net.AddressInfo).port;
  writeFileSync(path.join(work, "without.py"), withoutSystemCalls);
});

afterAll(() => {
  taken.close();
  rmSync(work, { recursive: true });
});

/** Starts a program under a filter that answers EPERM to the system calls whose numbers are given. */
const withoutSystemCalls = `
import ctypes, os, struct, sys
numbers = [int(text) for text in sys.argv[1].split(",")]
step = lambda code, yes, no, value: struct.pack("HBBI", code, yes, no, value)
steps = [step(0x20, 0, 0, 0)]
steps += [step(0x15, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
steps += [step(0x06, 0, 0, 0x7FFF0000), step(0x06, 0, 0, 0x00050001)]
code = ctypes.create_string_buffer(b"".join(steps))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Filter(len(steps), ctypes.cast(code, ctypes.c_void_p)))):
    sys.exit("no filter")
os.execvp(sys.argv[2], sys.argv[2:])
`;

/** mount and unshare of this architecture. */
const systemCalls = process.arch === "arm64" ? { mount: 40, unshare: 97 } : { mount: 165, unshare: 272 };

interface Mistake {
  readonly title: string;
  /** Shell commands in a mount namespace of their own, before the command; $DATA is the data directory. */
  readonly before?: string;
  /** Starts the command. */
  readonly by?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Behind the verb; default: addresses that are free. */
  readonly args?: readonly string[] | (() => readonly string[]);
  readonly verb?: string;
  readonly says: RegExp;
  readonly code: number;
}

const nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
const without = (capability: string): readonly string[] => [
  "setpriv",
  "--bounding-set",
  `-${capability}`,
  "--inh-caps",
  `-${capability}`,
];
const filtered = (number: number): readonly string[] => ["python3", path.join(work, "without.py"), String(number)];
const loaded = (text: string): Readonly<Record<string, string>> => ({
  NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(text)}`,
});
const listen = (address: string): readonly string[] => ["--listen", address, ...free.slice(2)];
const mountHere = (options: string): string => `mkdir "$DATA"; mount -t tmpfs -o ${options},mode=755 t "$DATA"`;

const mistakes: readonly Mistake[] = [
  {
    title: "a data directory of another user",
    before: "mount -t tmpfs t /mnt; mkdir /mnt/d; chown 65534 /mnt/d",
    args: [...free, "--data-dir", "/mnt/d"],
    says: /^error: \/mnt\/d belongs to user 65534, who could lead the engine elsewhere; everything above \/mnt\/d must belong to root: choose another place$/,
    code: 5,
  },
  {
    title: "a data directory below a closed one",
    before: "mount -t tmpfs t /mnt; mkdir -m 700 /mnt/closed",
    args: [...free, "--data-dir", "/mnt/closed/d"],
    says: /^error: the engine's unprivileged users cannot enter \/mnt\/closed \(mode 0700\), .*; let others through with: chmod o\+x \/mnt\/closed, or choose another --data-dir$/,
    code: 5,
  },
  {
    title: "a data directory that is a file",
    args: [...free, "--data-dir", "/etc/passwd/x"],
    says: /^error: \/etc\/passwd is not a directory; choose another with --data-dir$/,
    code: 2,
  },
  {
    title: "a data directory on a read-only file system",
    before: mountHere("ro,size=3g"),
    says: /^error: the data directory \S+ is on a read-only file system \(\S+\); choose another with --data-dir$/,
    code: 5,
  },
  {
    title: "a data directory mounted noexec",
    before: mountHere("noexec,size=3g"),
    says: /^error: the data directory \S+ is on a file system that is mounted noexec .*; mount it again with: mount -o remount,exec \S+, or choose/,
    code: 8,
  },
  {
    title: "too little disk",
    before: mountHere("size=20m"),
    says: /^error: only 20 MiB free at \S+, and an engine there needs 1280 MiB, .*; free some, choose another --data-dir, or keep less free with --system-reserved-disk$/,
    code: 1,
  },
  {
    title: "a port in use",
    args: () => listen(`127.0.0.1:${takenPort}`),
    says: /^error: --listen: 127\.0\.0\.1:\d+ is in use by \S+ \(pid \d+\); stop that program, or start the engine with another address, such as --listen 127\.0\.0\.1:0 for any free port$/,
    code: 6,
  },
  {
    title: "one port for two",
    args: ["--listen", "127.0.0.1:17999", "--router-listen", "127.0.0.1:17999", "--metrics-listen", "127.0.0.1:0"],
    says: /^error: --listen and --router-listen are both 127\.0\.0\.1:17999; give each a port of its own$/,
    code: 2,
  },
  ...["abc", ":99999", "[::1]", "::1:7443", "", "127.0.0.1:"].map((address) => ({
    title: `the address '${address}'`,
    args: listen(address),
    says: /^error: --listen: '.*' is not HOST:PORT; write it like 127\.0\.0\.1:7443, an IPv6 address like \[::1\]:7443, /,
    code: 2,
  })),
  {
    title: "an address of another machine",
    args: listen("192.0.2.77:5000"),
    says: /^error: --listen: 192\.0\.2\.77 is not an address of this machine; use one of 127\.0\.0\.1/,
    code: 2,
  },
  {
    title: "an IPv6 address of another machine",
    args: listen("[2001:db8::77]:5000"),
    says: /^error: --listen: 2001:db8::77 is not an address of this machine; use one of 127\.0\.0\.1/,
    code: 2,
  },
  {
    title: "a port for root",
    args: listen("127.0.0.1:443"),
    says: /^error: --listen: port 443 is for root, and the engine's processes that listen are not; choose a port from 1024 on$/,
    code: 5,
  },
  {
    title: "a flag that is no number",
    args: [...free, "--sandboxes-ahead", "x"],
    says: /^error: --sandboxes-ahead: 'x' is not a number from 0 to 64$/,
    code: 2,
  },
  {
    title: "a container without CAP_SYS_ADMIN",
    by: without("sys_admin"),
    says: /^error: this process is root without CAP_SYS_ADMIN, as in a container without rights; start the container with all of them, as docker run --privileged does/,
    code: 5,
  },
  {
    title: "a container without CAP_NET_ADMIN, asked by run",
    verb: "run",
    by: without("net_admin"),
    args: ["--", "true"],
    says: /^error: this process is root without CAP_NET_ADMIN, /,
    code: 125,
  },
  {
    title: "a container without CAP_SYS_ADMIN, asked by node",
    verb: "node",
    by: without("sys_admin"),
    args: () => ["--data-dir", dataDir],
    says: /^error: this process is root without CAP_SYS_ADMIN, /,
    code: 5,
  },
  {
    title: "a filter without mount",
    by: filtered(systemCalls.mount),
    says: /^error: this machine or container refuses to make mount namespaces and mounts \(.*Operation not permitted\), though this process is root; let its seccomp and AppArmor profiles allow unshare and mount/,
    code: 5,
  },
  {
    title: "a filter without unshare",
    by: filtered(systemCalls.unshare),
    says: /^error: this machine or container refuses to make .*namespaces.* \(.*Operation not permitted\), though this process is root; /,
    code: 5,
  },
  {
    title: "no loop devices",
    before: "mount -t tmpfs t /mnt; cp -a /dev/null /dev/zero /dev/random /dev/urandom /mnt; mount --bind /mnt /dev",
    says: /^error: there is no \/dev\/loop-control, and what sandboxes write is kept in loop devices; load them with: modprobe loop, or start the container/,
    code: 8,
  },
  {
    title: "cgroups that cannot be written to",
    before: "grep -o ' /sys/fs/cgroup[^ ]*' /proc/mounts | xargs -n1 mount -o remount,bind,ro",
    says: /^error: the cgroup file system \S+ is read-only, so that no sandbox can be given its limits; make it writable with: mount -o remount,rw/,
    code: 5,
  },
  {
    title: "no cgroups",
    before: "mount -t tmpfs t /sys/fs/cgroup",
    says: /^error: no cgroup file system is mounted at \/sys\/fs\/cgroup; mount it with: mount -t cgroup2 none \/sys\/fs\/cgroup/,
    code: 8,
  },
  {
    title: "a clock that was never set",
    env: loaded(
      "const D=Date;globalThis.Date=class extends D{constructor(...a){a.length?super(...a):super(864e5)}static now(){return 864e5}}",
    ),
    says: /^error: this machine's clock says 1970-01-02T00:00, which is in the past; set the clock, /,
    code: 1,
  },
  {
    title: "another architecture",
    env: loaded("Object.defineProperty(process,'arch',{value:'riscv64'})"),
    says: /^error: an engine runs on Linux on x86_64 or arm64, and this is linux on riscv64; use the engine of another machine with --kubeconfig$/,
    code: 8,
  },
  {
    title: "a record that cannot be read",
    before: `mkdir -p ${layoutOf(dataDir).runDir}; mount -t tmpfs t ${layoutOf(dataDir).runDir}; echo '{' > ${layoutOf(dataDir).recordFile}`,
    says: /^error: the record of the engine on \S+ cannot be read \(.*\); if none runs there, remove \S+engine\.json$/,
    code: 6,
  },
];

/** Runs the command as a mistake's row says; what is in the data directory afterwards comes on standard output. */
function make({ before = ":", by = [], env = {}, args = free, verb = "up" }: Omit<Mistake, "title" | "says" | "code">) {
  const words = typeof args === "function" ? args() : args;
  const script = `${before}; "$@"; code=$?; ls -A "$DATA" 2>/dev/null; exit $code`;
  const detach = verb === "up" ? ["--detach"] : [];
  const argv = [script, "mistake", ...by, command, verb, ...detach, ...words];
  return spawnSync("unshare", ["--mount", "--propagation", "private", "bash", "-c", ...argv], {
    encoding: "utf8",
    timeout: 60_000,
    env: { ...process.env, ...env, DATA: dataDir, AGENT_SANDBOX_DATA_DIR: dataDir },
  });
}

test.each(mistakes)(
  "first minute: $title: one sentence, its exit code, and nothing is left",
  ({ says, code, ...row }) => {
    try {
      const { status, stdout, stderr } = make(row);
      expect(stderr.trimEnd()).toMatch(says);
      expect(stderr.trimEnd().split("\n")).toHaveLength(1);
      expect(status).toBe(code);
      expect(stdout).toBe("");
      // A row that mounts something there makes the directory itself.
      if (row.before?.includes("$DATA") !== true) expect(existsSync(dataDir)).toBe(false);
    } finally {
      // What a row put there, and nothing else: both are empty.
      for (const dir of [dataDir, layoutOf(dataDir).runDir]) if (existsSync(dir)) rmSync(dir, { recursive: true });
    }
  },
);

test("first minute: without HOME the command does without its compile cache", () => {
  const script = 'unset HOME XDG_CACHE_HOME AGENT_SANDBOX_CACHE; "$@"';
  const child = spawnSync("bash", ["-c", script, "x", command, "up", "--listen", "abc"], { encoding: "utf8" });
  expect(child.stderr).toMatch(/^error: --listen: 'abc' is not HOST:PORT; /);
  expect(child.status).toBe(2);
});

test("first minute: not root: a user who cannot read what was set up gets the sentence before anything is built", () => {
  // The checkout may lie in a directory that is closed to other users; here it is in one that is open.
  const script = 'mount --bind "$1" /mnt && cd / && shift && exec "$@"';
  const words = ["--mount", "sh", "-c", script, "sh", rootDir, ...nobody, "/mnt/agent-sandbox", "run", "--", "true"];
  const child = spawnSync("unshare", words, { encoding: "utf8", env: { ...process.env, HOME: work } });
  expect(child.stderr.trimEnd()).toMatch(
    /^(error|agent-sandbox): .*the engine needs root to make namespaces, mounts and cgroups; run it again as root/,
  );
  expect(child.stderr.trimEnd().split("\n")).toHaveLength(1);
  expect(child.status).toBe(125);
});

test("first minute: doctor lists every check, and ends with the code of the first that is broken", () => {
  mkdirSync(dataDir);
  try {
    const { status, stdout } = make({ before: "mount -t tmpfs t /sys/fs/cgroup", verb: "doctor", args: [] });
    expect(stdout).toMatch(
      /^broken +cgroups +no cgroup file system is mounted at \/sys\/fs\/cgroup\n +Mount it with: /m,
    );
    expect(stdout).toMatch(/^ok +file systems /m);
    expect(stdout).toMatch(/^ok +gVisor \(runsc\) +runsc v\S+, as pinned; no known advisory$/m);
    expect(stdout).toMatch(/^broken +engine +not running$/m);
    expect(status).toBe(8);
  } finally {
    rmSync(dataDir, { recursive: true });
  }
});
