/**
 * What sandboxes of one image cost in memory, and what of it they share: 1, 10 and 50 of them, each with an interpreter that has imported and touched its own memory.
 * Needs root: it starts an engine of its own.
 *
 *   node bench/memory.ts [--counts=1,10,50]
 */
import { readdirSync, readFileSync } from "node:fs";
import { loadavg } from "node:os";
import path from "node:path";
import { runDirOf } from "@agent-sandbox/kube/engine-record";
import { Sandbox } from "@agent-sandbox/sdk";
import { ExampleEngine } from "../test/examples/engine.ts";
import { record } from "./load/record.ts";

const counts = (process.argv.find((word) => word.startsWith("--counts="))?.slice(9) ?? "1,10,50")
  .split(",")
  .map(Number);

/** Memory that an interpreter writes to, so that it can be no other's. */
const touchedMiB = 8;

/** What runs in each sandbox besides its daemon. */
const guests = {
  "a shell that sleeps": ["sh", "-c", "echo begun; exec sleep 86400"],
  [`Python with json, ssl and asyncio imported and ${touchedMiB} MiB written`]: [
    "python3",
    "-c",
    `import json, ssl, asyncio, time; own = bytearray(${touchedMiB} << 20); own[::4096] = b"x" * len(own[::4096]); print("begun", flush=True); time.sleep(86400)`,
  ],
};

/** Parts of a sandbox on the host. */
const roles = ["sentry", "gofer", "guest"] as const;
type Role = (typeof roles)[number];

/** Kibibytes of one role's processes: resident, its proportional part of what is shared, its own alone; then the proportional part by kind of page. */
interface Sizes {
  rss: number;
  pss: number;
  uss: number;
  anon: number;
  file: number;
  shmem: number;
}

const none = (): Sizes => ({ rss: 0, pss: 0, uss: 0, anon: 0, file: 0, shmem: 0 });

function sizesOf(pid: string): Sizes {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const kib = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0);
  return {
    rss: kib("Rss"),
    pss: kib("Pss"),
    uss: kib("Private_Clean") + kib("Private_Dirty"),
    anon: kib("Pss_Anon"),
    file: kib("Pss_File"),
    shmem: kib("Pss_Shmem"),
  };
}

/** By the name that runsc gives its processes; what runs the guest's code has none of them. */
function roleOf(pid: string): Role {
  const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
  if (command.startsWith("runsc-gofer")) return "gofer";
  return command.startsWith("runsc-sandbox") ? "sentry" : "guest";
}

/** Where the memory controller of this machine has the sandboxes of an engine. */
function sandboxGroups(instance: string): string[] {
  const parent = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map((root) =>
    path.join(root, `agent-sandbox-${instance}`),
  );
  const found = parent.find((dir) => readdirSync(path.dirname(dir)).includes(path.basename(dir)));
  if (found === undefined) throw new Error(`no cgroup of instance ${instance}`);
  const entries = readdirSync(found, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return entries.map(({ name }) => path.join(found, name));
}

function pidsOf(group: string): string[] {
  return readFileSync(path.join(group, "cgroup.procs"), "utf8")
    .split("\n")
    .filter((pid) => pid !== "");
}

function measure(instance: string): Record<Role, Sizes> {
  const sums: Record<Role, Sizes> = { sentry: none(), gofer: none(), guest: none() };
  for (const pid of sandboxGroups(instance).flatMap(pidsOf)) {
    const role = roleOf(pid);
    for (const [key, kib] of Object.entries(sizesOf(pid))) sums[role][key as keyof Sizes] += kib;
  }
  return sums;
}

function row(what: string, count: number, sums: Record<Role, Sizes>): string {
  const all = roles.map((role) => sums[role]);
  const mib = (key: keyof Sizes, of: readonly Sizes[] = all): string =>
    (of.reduce((sum, sizes) => sum + sizes[key], 0) / 1024 / count).toFixed(1);
  const shares = roles.map((role) => mib("pss", [sums[role]]));
  const figures = [mib("rss"), mib("pss"), mib("uss"), mib("anon"), mib("file"), mib("shmem"), ...shares];
  return `| ${[what, count, ...figures].join(" | ")} |`;
}

async function add(engine: ExampleEngine, guest: readonly string[]): Promise<Sandbox> {
  const box = await Sandbox.create({ engine: { dataDir: engine.dataDir } });
  const program = await box.spawn([...guest]);
  for await (const bytes of program.stdout) if (Buffer.from(bytes).includes("begun")) break;
  return box;
}

/** Each guest has an engine of its own, so that nothing of the other is left. */
async function measureAll(what: string, guest: readonly string[]): Promise<string[]> {
  const engine = await ExampleEngine.start("--sandboxes-ahead", "0");
  try {
    const boxes: Sandbox[] = [];
    const rows: string[] = [];
    for (const count of counts) {
      while (boxes.length < count) boxes.push(await add(engine, guest));
      rows.push(row(what, count, measure(path.basename(runDirOf(engine.dataDir)))));
      process.stdout.write(`${rows.at(-1)}\n`);
    }
    return rows;
  } finally {
    await engine[Symbol.asyncDispose]();
  }
}

const load = loadavg()
  .map((each) => each.toFixed(2))
  .join(" ");
const rows: string[] = [];
for (const [what, guest] of Object.entries(guests)) rows.push(...(await measureAll(what, guest)));
record(
  "memory",
  `# Memory

Sandboxes of the image \`host\`; ${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC, load average before the run ${load}. MiB for each sandbox: resident, proportional (what n processes share counts
as an n-th for each), unique; the proportional part by kind of page; the proportional part by process.

| in each | sandboxes | resident | proportional | unique | anonymous | files | guest memory | sentry | gofer | guest's processes |
|---|---|---|---|---|---|---|---|---|---|---|
${rows.join("\n")}

Made by \`npm run bench -- memory\`. What it means: [docs/memory.md](../../docs/memory.md).
`,
);
