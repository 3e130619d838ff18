import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";

// What keeps a fresh checkout from being set up: said in one sentence before anything is built or fetched.

const work = mkdtempSync("/var/tmp/as-setup-test-");
const checkout = path.join(work, "checkout");
const command = path.join(checkout, "agent-sandbox");
const cache = path.join(work, "cache");

beforeAll(() => {
  chmodSync(work, 0o755);
  // All that the set-up reads before its first step.
  for (const part of ["agent-sandbox", "scripts", "package-lock.json", "native", "sdks/go"])
    cpSync(path.join(rootDir, part), path.join(checkout, part), { recursive: true });
});

afterAll(() => rmSync(work, { recursive: true }));

/** Programs of this machine by name, and scripts in their places; nothing else is on the PATH. */
function programs(name: string, found: readonly string[], scripts: Readonly<Record<string, string>> = {}): string {
  const dir = path.join(work, name);
  mkdirSync(dir);
  for (const program of ["sh", "bash", "find", "readlink", "uname", ...found]) {
    const target = spawnSync("sh", ["-c", `command -v ${program}`], { encoding: "utf8" }).stdout.trim();
    if (scripts[program] === undefined) symlinkSync(target, path.join(dir, program));
  }
  for (const [program, text] of Object.entries(scripts))
    writeFileSync(path.join(dir, program), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return dir;
}

interface Mistake {
  readonly title: string;
  /** Shell commands in mount and network namespaces of their own, before the command. */
  readonly before?: string;
  readonly by?: readonly string[];
  /** An undefined one is removed. */
  readonly env?: () => Readonly<Record<string, string | undefined>>;
  readonly verb?: string;
  readonly says: RegExp;
  readonly code: number;
}

const nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
const node18 = "case $1 in --version) echo v18.19.0 ;; *) exit 1 ;; esac";
const noHome = { AGENT_SANDBOX_CACHE: undefined, XDG_CACHE_HOME: undefined };

const mistakes: readonly Mistake[] = [
  {
    title: "not root",
    by: nobody,
    says: /: the engine needs root to make namespaces, mounts and cgroups; run it again as root, for example with sudo, or use the engine of another machine with --kubeconfig$/,
    code: 5,
  },
  { title: "not root, asked by run", by: nobody, verb: "run", says: /: the engine needs root /, code: 125 },
  {
    title: "a checkout of another user",
    by: nobody,
    verb: "ls",
    env: () => ({ AGENT_SANDBOX_CACHE: "/tmp" }),
    says: /: this checkout \S+ cannot be written to by this user; make a checkout of your own, or let its owner run \.\/agent-sandbox once$/,
    code: 5,
  },
  {
    title: "no HOME",
    env: () => ({ ...noHome, HOME: undefined }),
    says: /: HOME is not set, so there is no place for what is built; set it, or name a directory that can be written to with AGENT_SANDBOX_CACHE$/,
    code: 1,
  },
  {
    title: "a HOME that does not exist",
    env: () => ({ ...noHome, HOME: path.join(work, "nowhere") }),
    says: /: HOME is \S+nowhere, which does not exist; make it, or name a directory/,
    code: 1,
  },
  {
    title: "a HOME that cannot be written to",
    verb: "ls",
    by: nobody,
    env: () => ({ ...noHome, HOME: work }),
    says: /: the cache directory \S+ cannot be written to by this user; name a directory that can be written to with AGENT_SANDBOX_CACHE$/,
    code: 5,
  },
  {
    title: "a cache on a read-only file system",
    before: "mount -t tmpfs -o ro t /mnt",
    env: () => ({ AGENT_SANDBOX_CACHE: "/mnt/cache" }),
    says: /: the cache directory \/mnt\/cache is on a read-only file system; name a directory/,
    code: 5,
  },
  {
    title: "a cache below a file",
    env: () => ({ AGENT_SANDBOX_CACHE: "/etc/passwd/cache" }),
    says: /: the cache directory \/etc\/passwd\/cache cannot be made, because \/etc\/passwd is not a directory; name a directory/,
    code: 1,
  },
  {
    title: "too little disk for the cache",
    before: "mount -t tmpfs -o size=20m t /mnt",
    env: () => ({ AGENT_SANDBOX_CACHE: "/mnt/cache" }),
    says: /: only 20 MiB are free for the cache directory \/mnt\/cache, and the set-up takes \d+ MiB; free some, or name a directory elsewhere with AGENT_SANDBOX_CACHE$/,
    code: 1,
  },
  {
    title: "no network",
    says: /: the registry of npm cannot be reached \(\w+\), and still to be fetched are: npm packages and the pinned Node, .*runsc .*; connect this machine, or name a mirror or a proxy in the settings of npm$/,
    code: 1,
  },
  {
    title: "no Node",
    env: () => ({ PATH: programs("no-node", []) }),
    says: /^agent-sandbox: node not found; install Node 20\.12 or newer with npm$/,
    code: 1,
  },
  {
    title: "an old Node",
    env: () => ({ PATH: programs("old-node", [], { node: node18 }) }),
    says: /^agent-sandbox: node v18\.19\.0 is too old to set this checkout up; install Node 20\.12 or newer with npm$/,
    code: 1,
  },
  {
    title: "neither npm nor Python",
    env: () => ({ PATH: programs("no-npm", ["node", "flock"]) }),
    says: /: the set-up needs npm and python3, which this machine does not have; install npm and python3 with pip$/,
    code: 1,
  },
  {
    title: "another operating system",
    env: () => ({ PATH: programs("darwin", [], { uname: "case $1 in -s) echo Darwin ;; *) echo arm64 ;; esac" }) }),
    says: /^agent-sandbox: an engine runs on Linux on x86_64 or arm64, and this is Darwin on arm64; use a Linux machine$/,
    code: 8,
  },
];

function make({ before = ":", by = [], env = () => ({}), verb = "up" }: Omit<Mistake, "title" | "says" | "code">) {
  const given = Object.entries({ AGENT_SANDBOX_CACHE: cache, ...env() });
  const set = given.map(([name, value]) => (value === undefined ? `unset ${name}` : `export ${name}='${value}'`));
  const script = [before, ...set, 'exec "$@"'].join("; ");
  const space = ["--mount", "--net", "--propagation", "private", "bash", "-c"];
  return spawnSync("unshare", [...space, script, "mistake", ...by, command, verb], {
    encoding: "utf8",
    timeout: 60_000,
  });
}

test.each(mistakes)(
  "first set-up: $title: one sentence, its exit code, and nothing is built",
  ({ says, code, ...row }) => {
    const { status, stdout, stderr } = make(row);
    expect(stderr.trimEnd()).toMatch(says);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
    expect(stdout).toBe("");
    expect(status).toBe(code);
    for (const made of [
      cache,
      path.join(checkout, "node_modules"),
      path.join(work, "nowhere"),
      path.join(work, ".cache"),
    ])
      expect(existsSync(made)).toBe(false);
  },
);
