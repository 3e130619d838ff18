// Runs the probes of `verify` against what they must find broken, and prints the findings of each weakening as JSON.
//
//   node weakened-verify.ts DATA-DIR TEMPLATE NODE-PID
//
// The first run is against the engine itself, without its packet rules, with a template that gives away the machine's files, with an API that forgets what
// it must refuse, and with an old runtime. The second is against no sandbox at all: the attempts are made by root's processes on the machine, every line of
// a flood of log is kept, and the node stands still as long as the flood lasts.
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, createWriteStream, mkdtempSync, openSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { json } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Pod } from "@agent-sandbox/api";
import { createClient, type Transport } from "@agent-sandbox/kube";
import type { Engine } from "@agent-sandbox/sdk";
import { connectEngine } from "@agent-sandbox/sdk/engine/connect-engine";
import type { Attempt, Outcome } from "../../packages/cli/src/verify/attempt.ts";
import type { Ground } from "../../packages/cli/src/verify/ground.ts";
import { startHolder, tryOnHost } from "../../packages/cli/src/verify/host-probe.ts";
import { openGround } from "../../packages/cli/src/verify/open-ground.ts";
import type { Finding } from "../../packages/cli/src/verify/probe.ts";
import { probes } from "../../packages/cli/src/verify/probes/probes.ts";
import { runProbes } from "../../packages/cli/src/verify/run-probes.ts";
import { findProbe } from "../../packages/server/src/main/programs.ts";

const [dataDir = "", template = "", nodePidText] = process.argv.slice(2);
const nodePid = Number(nodePidText);
const { signal } = new AbortController();
const onProgress = (): void => undefined;
const program = findProbe();
/** What a weakening of the engine can break: limits cost time, and the second run breaks them all. */
const fromInside = probes.filter((probe) => "plan" in probe && !probe.id.startsWith("limits/"));
const byLooking = probes.filter((probe) => "look" in probe && !probe.id.startsWith("limits/"));
/** What needs no engine; of the hosts outside, the machine itself is led to none but those of IPv6. */
const wallless = probes.filter(
  (probe) =>
    ("plan" in probe || probe.id.startsWith("limits/")) &&
    (!probe.id.startsWith("egress/") || probe.id === "egress/ipv6"),
);

/** A transport behind which the API does not see by which fields a Pod asks for the machine. */
function forgetful(transport: Transport): Transport {
  return {
    request: (request) => {
      const isPod = request.method === "POST" && /\/pods(\?|$)/.test(request.path);
      return transport.request(isPod ? { ...request, body: withoutWishes(String(request.body)) } : request);
    },
    upgrade: (request) => transport.upgrade(request),
    close: () => transport.close(),
  };
}

function withoutWishes(text: string): string {
  const pod = JSON.parse(text) as Pod;
  const [{ name, image, command } = { name: "" }] = pod.spec?.containers ?? [];
  const { restartPolicy, terminationGracePeriodSeconds } = pod.spec ?? {};
  return JSON.stringify({
    ...pod,
    spec: { restartPolicy, terminationGracePeriodSeconds, containers: [{ name, image, command }] },
  });
}

/** The engine with the forgetful API; what the SDK makes goes the usual way. */
function withForgetfulApi(ground: Ground): Ground {
  const client = createClient(forgetful(ground.engine.client.transport));
  const engine = new Proxy<Engine>(ground.engine, {
    get: (target, key) => (key === "client" ? client : Reflect.get(target, key, target)),
  });
  return { ...ground, engine };
}

function instanceOf(ground: Ground): string {
  const socket = ground.host?.sockets.find((file) => file.startsWith("/run/agent-sandbox/")) ?? "";
  return socket.split("/")[3] ?? "";
}

/** Without its packet rules no further Pod gets a network, so they are back before Pods are asked for. */
async function runOpened(ground: Ground): Promise<Finding[]> {
  const table = ["table", "inet", `as_${instanceOf(ground)}`];
  const rules = execFileSync("nft", ["list", ...table]);
  execFileSync("nft", ["delete", ...table]);
  const unguarded = await runProbes(fromInside, ground, { signal, onProgress });
  execFileSync("nft", ["-f", "-"], { input: rules });
  const careless = { ...withForgetfulApi(ground), runtimes: { runsc: "release-20240101.0" } };
  return [...unguarded, ...(await runProbes(byLooking, careless, { signal, onProgress }))];
}

/** Sandboxes without walls: their marks are the machine's, and so is what their attempts reach. */
async function runBare(ground: Ground, stack: AsyncDisposableStack): Promise<Finding[]> {
  for (const place of ["prisoner", "neighbour"] as const) {
    const { name, key } = ground.marks[place];
    const listen = place === "prisoner" ? [`:${ground.port}`] : [];
    stack.use(await startHolder(program, name, { holding: { key, files: [`/tmp/${name}`], listen } }));
  }
  execFileSync("ip", ["-6", "route", "add", "fd00:ec2::254", "via", "fd71:90::2", "dev", "as-verify"]);
  const tryAt: Ground["tryAt"] = async (place, attempts, stop) => {
    // A log is a sandbox's; the machine has none.
    if (attempts.some((attempt) => attempt.do === "log")) return writeLog(ground, place, attempts, stack);
    const leaking = attempts.filter((attempt) => attempt.do === "descriptors" && attempt.path === undefined);
    const leaked = leaking.length === 0 ? [] : await tryWithOpenRoot(leaking);
    const others = attempts.filter((attempt) => !leaking.includes(attempt));
    const seen = await tryOnHost(program, others, stop);
    return attempts.map((attempt) => {
      const index = leaking.indexOf(attempt);
      return (index < 0 ? seen[others.indexOf(attempt)] : leaked[index]) ?? { through: false, detail: "lost" };
    });
  };
  return runProbes(wallless, { ...ground, tryAt }, { signal, onProgress });
}

/** How long the node stands still at a time: a read that begins meanwhile waits for half of it on average, which is more than it may. */
const stillMs = 3_500;
/** More than one line is a flood. */
const floodBytesMin = 2 ** 20;

/** Writes to the log of a sandbox; of a flood every byte is kept in the data directory, and the node stands still meanwhile. */
async function writeLog(
  { tryAt }: Ground,
  place: Parameters<Ground["tryAt"]>[0],
  attempts: readonly Attempt[],
  stack: AsyncDisposableStack,
): Promise<readonly Outcome[]> {
  const bytes = attempts.reduce((sum, { number = 0 }) => sum + number, 0);
  if (bytes < floodBytesMin) return tryAt(place, attempts, signal);
  const file = path.join(dataDir, "every-line.log");
  stack.defer(() => rmSync(file, { force: true }));
  const block = Buffer.alloc(2 ** 20, "every line\n");
  const blocks = Array.from({ length: Math.ceil(bytes / block.length) }, () => block);
  let isOver = false;
  const [outcomes] = await Promise.all([
    tryAt(place, attempts, signal).finally(() => (isOver = true)),
    pipeline(Readable.from(blocks), createWriteStream(file)),
    standStill(() => isOver),
  ]);
  return outcomes;
}

async function standStill(isOver: () => boolean): Promise<void> {
  do {
    process.kill(nodePid, "SIGSTOP");
    try {
      await sleep(stillMs);
    } finally {
      process.kill(nodePid, "SIGCONT");
    }
    await sleep(stillMs / 10);
  } while (!isOver());
}

/** In another root, with a directory of the machine left open: what a careless runtime does. */
async function tryWithOpenRoot(attempts: readonly Attempt[]): Promise<Outcome[]> {
  const root = mkdtempSync(path.join(os.tmpdir(), "verify-root-"));
  try {
    copyFileSync(program, path.join(root, "sandbox-probe"));
    const child = spawn("chroot", [root, "/sandbox-probe", "try"], {
      stdio: ["pipe", "pipe", "inherit", openSync("/", "r")],
    });
    child.stdin?.end(JSON.stringify(attempts));
    return (await json(child.stdout as NonNullable<typeof child.stdout>)) as Outcome[];
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

await using stack = new AsyncDisposableStack();
const engine = await connectEngine({ dataDir });
stack.defer(() => engine.close());
const ground = await openGround(
  { engine, dataDir, namespace: undefined, image: undefined, runtime: undefined, template, onProgress, signal },
  stack,
);
const report = { opened: await runOpened(ground), bare: await runBare(ground, stack) };
process.stdout.write(`${JSON.stringify(report)}\n`);
