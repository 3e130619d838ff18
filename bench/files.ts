/**
 * Files through router and sandboxd next to `cp`: throughput, 5 GiB there and back with the router's memory watched, and ten
 * thousand small ones:
 *
 *   node bench/files.ts [--gibibytes=5] [--files=10000] [--parts=throughput,small,large]
 *
 * The result is recorded when all parts were run.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { roleProcess } from "../test/node/engine-processes.ts";
import { RealEngine } from "../test/node/real-engine.ts";
import {
  type Calls,
  circumstances,
  type Job,
  type JobResult,
  makeSandbox,
  openCalls,
  throughRouter,
} from "./load/engine-calls.ts";
import { residentMiB } from "./load/process-memory.ts";
import { cells } from "./load/samples.ts";

function flag(name: string, fallback: number): number {
  return Number(process.argv.find((word) => word.startsWith(`--${name}=`))?.split("=")[1] ?? fallback);
}

const gibibytes = flag("gibibytes", 5);
const count = flag("files", 10_000);
const allParts = ["throughput", "small", "large"] as const;
const wantedParts =
  process.argv
    .find((word) => word.startsWith("--parts="))
    ?.split("=")[1]
    ?.split(",") ?? allParts;
const parts = allParts.filter((part) => wantedParts.includes(part));
const growthMiBMax = 64;
/** Sent there and back before anything is measured: what first use of the way takes counts for no part, whichever are run. */
const firstUseBytes = 2 ** 26;
const smallBytes = 1024;

/** Does the work while the resident memory of a process is looked at; gives the most that was seen above its start. */
async function growthOf(pid: number, work: () => Promise<void>): Promise<{ beforeMiB: number; growthMiB: number }> {
  const beforeMiB = residentMiB([pid]);
  let mostMiB = beforeMiB;
  const timer = setInterval(() => (mostMiB = Math.max(mostMiB, residentMiB([pid]))), 50);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return { beforeMiB, growthMiB: mostMiB - beforeMiB };
}

async function checked(calls: Calls, job: Job, wanted: number): Promise<JobResult> {
  const result = await calls.run(job);
  if (result.statuses.join() !== String(wanted))
    throw new Error(`${job.method} ${job.path}: ${result.statuses.join()}`);
  return result;
}

interface Transfer {
  readonly upMs: number;
  readonly downMs: number;
}

/** There and back; throws unless the same bytes return. */
async function roundTrip(calls: Calls, bytes: number): Promise<Transfer> {
  const path = "/v1/files/big.bin";
  const up = await checked(calls, { method: "PUT", path, bytes }, 204);
  const down = await checked(calls, { method: "GET", path }, 200);
  if (down.bytes !== bytes || down.sum !== up.sentSum) throw new Error(`${down.bytes} of ${bytes} bytes came back`);
  return { upMs: up.totalMs, downMs: down.totalMs };
}

/** Milliseconds that a shell script takes on this machine. */
function hostMs(engine: RealEngine, script: string): number {
  const startMs = performance.now();
  const { status, stderr } = engine.place.run(["sh", "-c", script], { timeoutMs: 300_000 });
  if (status !== 0) throw new Error(`${script}: ${stderr}`);
  return performance.now() - startMs;
}

async function sandboxMs(engine: RealEngine, script: string): Promise<number> {
  const startMs = performance.now();
  const ran = await engine.sh("box", script, { timeoutMs: 300_000 });
  if (ran.exitCode !== 0) throw new Error(`${script}: ${ran.stderr}`);
  return performance.now() - startMs;
}

const perSecond = (bytes: number, ms: number): string => `${(bytes / 2 ** 20 / (ms / 1000)).toFixed(0)} MiB/s`;

async function throughput(engine: RealEngine, calls: Calls, work: string): Promise<string> {
  const bytes = 2 ** 30;
  const { upMs, downMs } = await roundTrip(calls, bytes);
  writeFileSync(path.join(work, "source.bin"), Buffer.alloc(bytes, 7));
  const onHost = hostMs(engine, `cp ${work}/source.bin ${work}/copy.bin && rm ${work}/copy.bin`);
  const inside = await sandboxMs(engine, "cp /workspace/big.bin /tmp/copy.bin && rm /tmp/copy.bin");
  return `| | 1 GiB |
|---|---|
| upload | ${perSecond(bytes, upMs)} |
| download | ${perSecond(bytes, downMs)} |
| \`cp\` on the machine | ${perSecond(bytes, onHost)} |
| \`cp\` inside the sandbox | ${perSecond(bytes, inside)} |`;
}

async function large(engine: RealEngine, calls: Calls): Promise<{ text: string; growthMiB: number }> {
  const bytes = gibibytes * 2 ** 30;
  let transfer: Transfer = { upMs: 0, downMs: 0 };
  const { beforeMiB, growthMiB } = await growthOf(roleProcess(engine, "router") ?? 0, async () => {
    transfer = await roundTrip(calls, bytes);
  });
  const text = `${gibibytes} GiB there and back, the same checksum: ${perSecond(bytes, transfer.upMs)} up, ${perSecond(bytes, transfer.downMs)} down; the router's resident memory was ${beforeMiB.toFixed(0)} MiB and grew by ${growthMiB.toFixed(0)} MiB at most (wanted: under ${growthMiBMax}).`;
  return { text, growthMiB };
}

async function small(engine: RealEngine, calls: Calls, work: string): Promise<string> {
  const put = await checked(
    calls,
    { method: "PUT", path: "/v1/files/small%2F{index}.txt", bytes: smallBytes, times: count },
    204,
  );
  const get = await checked(calls, { method: "GET", path: "/v1/files/small%2F{index}.txt", times: count }, 200);
  const down = await checked(calls, { method: "GET", path: "/v1/files/small?format=tar" }, 200);
  mkdirSync(path.join(work, "small"));
  for (let index = 0; index < count; index += 1)
    writeFileSync(path.join(work, `small/${index}.txt`), Buffer.alloc(smallBytes, 7));
  const archive = path.join(work, "small.tar");
  hostMs(engine, `tar -cf ${archive} -C ${work} small`);
  const onHost = hostMs(engine, `cp -r ${work}/small ${work}/small-copy`);
  const inside = await sandboxMs(engine, "cp -r /workspace/small /tmp/small-copy");
  const up = await upload(engine, archive);
  return `${count.toLocaleString("en")} files of ${smallBytes} bytes:

| | seconds | each, p50 ms | p99 ms |
|---|---|---|---|
| written one by one on a kept connection | ${(put.totalMs / 1000).toFixed(1)} | ${cells(put.ms)} |
| read one by one | ${(get.totalMs / 1000).toFixed(1)} | ${cells(get.ms)} |
| unpacked from one tar | ${(up / 1000).toFixed(1)} | | |
| packed into one tar | ${(down.totalMs / 1000).toFixed(1)} | | |
| \`cp -r\` inside the sandbox | ${(inside / 1000).toFixed(1)} | | |
| \`cp -r\` on the machine | ${(onHost / 1000).toFixed(1)} | | |`;
}

/** Sends an archive with curl, from inside the engine's namespace. */
async function upload(engine: RealEngine, archive: string): Promise<number> {
  const place = throughRouter(engine, "box");
  const directory = path.dirname(archive);
  for (const name of ["ca", "cert", "key"] as const)
    writeFileSync(path.join(directory, `${name}.pem`), place[name] ?? "");
  const flags = Object.entries({ ...place.headers, "Content-Type": "application/x-tar" }).map(
    ([name, value]) => `-H '${name}: ${value}'`,
  );
  const tls = `--cacert ${directory}/ca.pem --cert ${directory}/cert.pem --key ${directory}/key.pem`;
  const target = "https://127.0.0.1:7080/v1/files/unpacked?extract=tar";
  return hostMs(engine, `curl --fail --silent --show-error ${tls} ${flags.join(" ")} -T ${archive} '${target}'`);
}

const when = circumstances();
const work = mkdtempSync(path.join(tmpdir(), "bench-files-"));
const engine = await RealEngine.open("--router-listen", "127.0.0.1:7080");
try {
  await makeSandbox(engine, "box");
  await using calls = openCalls(engine, throughRouter(engine, "box"));
  await roundTrip(calls, firstUseBytes);
  let growthMiB = 0;
  const measure = {
    throughput: () => throughput(engine, calls, work),
    small: () => small(engine, calls, work),
    large: async () => {
      const { text: found, growthMiB: grown } = await large(engine, calls);
      growthMiB = grown;
      return found;
    },
  };
  const found: string[] = [];
  for (const part of parts) {
    found.push(await measure[part]());
    process.stdout.write(`${found.at(-1)}\n\n`);
  }
  const text = `# Files

Through router and sandboxd into a gVisor sandbox's writable layer, one kept TLS connection, authorisation on; ${when}.

${found.join("\n\n")}

Made by \`npm run bench -- files\`.
`;
  if (parts.length === allParts.length) writeFileSync(path.join(import.meta.dirname, "results/files.md"), text);
  if (growthMiB >= growthMiBMax) process.exitCode = 1;
} finally {
  await engine[Symbol.asyncDispose]();
  rmSync(work, { recursive: true, force: true });
}
