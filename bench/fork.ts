/**
 * What a fork of n costs: by the engine, by the helper's verb alone, and by `runsc restore` of the same memory as often at once:
 *
 *   node bench/fork.ts [--counts=1,4,16] [--rounds=2]
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { type Sandbox, type SandboxSnapshot, sandboxes, sandboxSnapshots, snapshotState } from "@agent-sandbox/api";
import { sweepAll } from "../test/host/contract-case.ts";
import { RealHost } from "../test/host/real-host.ts";
import { guestOf, SavedBench, slot } from "../test/host/saved-bench.ts";
import { guestProcess } from "../test/host/saved-guest.ts";
import { RealEngine, until } from "../test/node/real-engine.ts";
import { BareRunsc } from "./load/bare-runsc.ts";
import { circumstances } from "./load/engine-calls.ts";
import { quantile } from "./load/samples.ts";

function flag(name: string, fallback: string): string {
  return process.argv.find((word) => word.startsWith(`--${name}=`))?.split("=")[1] ?? fallback;
}

const counts = flag("counts", "1,4,16").split(",").map(Number);
const rounds = Number(flag("rounds", "2"));
const memoryMiB = 16;

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}

const upTo = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index + 1);

/** Where one child of the helper's part is. runsc takes the beginning of a name for the whole, so that none may be another's. */
const placeOf = (child: number): { id: string; slot: number; address: string } => ({
  id: `c${String(child).padStart(3, "0")}`,
  slot: slot + child,
  address: `10.203.0.${slot + child}`,
});

/** Layers, slots and rules of children, which neither of the two ways is charged with. */
async function preparePlaces({ real }: SavedBench, count: number): Promise<void> {
  const { host } = real;
  const places = upTo(count).map(placeOf);
  for (const place of places) {
    await host.deleteContainer({ id: place.id });
    await host.releaseRootfs({ id: place.id });
    await host.deleteWritableLayer({ key: place.id });
    await host.releaseSlot({ slot: place.slot });
    await host.cloneImage({ kind: "writable", from: "snapshot", to: place.id, pauseMaxMs: 10_000 });
    await host.prepareRootfs({ id: place.id, hostUsr: true, writableBytes: 2 ** 27, keepKey: place.id });
    await host.ensureSlot({ slot: place.slot });
    await host.assignSlot({ slot: place.slot, address: place.address });
  }
  const endpoints = places.map((place) => ({ slot: place.slot, address: place.address, ingress: [{}], egress: [{}] }));
  await host.applyRules({ endpoints, gatewayPorts: [], sleeping: [] });
}

interface HostFigures {
  readonly bare: number[];
  readonly verb: number[];
}

/** The same memory restored `count` times at once by `runsc` alone and by the helper. */
async function measureHost(bench: SavedBench, bare: BareRunsc, count: number): Promise<HostFigures> {
  const figures: HostFigures = { bare: [], verb: [] };
  const places = upTo(count).map(placeOf);
  for (let turn = 0; turn < rounds; turn += 1) {
    await preparePlaces(bench, count);
    for (const { id, slot: own } of places) bare.addPlace(id, { rootfs: ["s0", id], slot: [slot, own] });
    try {
      figures.bare.push(await timed(() => Promise.all(places.map(({ id }) => bare.restore(id)))));
    } finally {
      // The helper knows nothing of them, and sweeps none away.
      await Promise.all(places.map(({ id }) => bare.delete(id)));
    }
    await preparePlaces(bench, count);
    const process = guestProcess(memoryMiB);
    const restoreFrom = { saved: "state", container: "s0" };
    const start = ({ id, slot: own }: (typeof places)[number]) =>
      bench.real.host.runContainer(guestOf(id, { process, slot: own, hostname: id, restoreFrom }));
    figures.verb.push(await timed(() => Promise.all(places.map(start))));
  }
  return figures;
}

async function hostRows(): Promise<Map<number, HostFigures>> {
  const real = await RealHost.open();
  try {
    const bench = new SavedBench(real);
    const { host } = real;
    await bench.start("s0", memoryMiB);
    const { runtimeVersion } = (await host.listContainers())[0] ?? {};
    const bare = new BareRunsc(real, runtimeVersion ?? "");
    await bare.checkpoint("s0");
    await host.saveSandbox({ id: "s0", saved: "state", reusable: true });
    await host.cloneImage({ kind: "writable", from: "kept", to: "snapshot", pauseMaxMs: 10_000 });
    await host.continueSandbox({ id: "s0" });
    const rows = new Map<number, HostFigures>();
    for (const count of counts) rows.set(count, await measureHost(bench, bare, count));
    if ((await host.sweep({ ...sweepAll, network: true })).failed.length > 0) throw new Error("something is left");
    return rows;
  } finally {
    await real[Symbol.asyncDispose]();
  }
}

interface ForkFigures {
  readonly snapshot: number[];
  readonly standstill: number[];
  /** From the first child's object until the last is Ready. */
  readonly children: number[];
}

const namespace = "default";

function sandboxOf(name: string, more: Partial<Sandbox["spec"]> = {}): Sandbox {
  const script = `held = bytearray(${memoryMiB} << 20)
for at in range(0, len(held), 4096): held[at] = 1 + at % 251
import time
while True: time.sleep(3600)`;
  const containers = [{ name: "main", image: "host", command: ["python3", "-c", script] }];
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name, namespace },
    spec: { podTemplate: { spec: { terminationGracePeriodSeconds: 0, containers } }, ...more },
  };
}

function isReady({ status }: Sandbox): boolean {
  return status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") ?? false;
}

/** Resolves when so many Sandboxes are Ready, which is asked in one question however many they are. */
async function readyCount(engine: RealEngine, count: number): Promise<void> {
  await until(async () => {
    const { items } = await engine.client.list(sandboxes, { namespace });
    return items.filter(isReady).length === count && items.length === count;
  });
}

async function takeSnapshot(engine: RealEngine, name: string, figures: ForkFigures): Promise<void> {
  const snapshot = {
    apiVersion: "agent-sandbox.dev/v1alpha1",
    kind: "SandboxSnapshot",
    metadata: { name, namespace },
    spec: { sandboxName: "source" },
  } as SandboxSnapshot;
  const takenMs = await timed(async () => {
    await engine.client.create(sandboxSnapshots, snapshot);
    const taken = await engine.objectWhere(sandboxSnapshots, { namespace, name }, isSettled);
    figures.standstill.push(taken.status?.standstillMs ?? 0);
  });
  figures.snapshot.push(takenMs);
}

function isSettled(snapshot: SandboxSnapshot): boolean {
  const { state, message } = snapshotState(snapshot);
  if (state === "failed") throw new Error(message);
  return state === "ready";
}

/** One fork of the engine, as the SDKs make it. */
async function fork(engine: RealEngine, count: number, figures: ForkFigures): Promise<void> {
  const snapshotName = `snap-${count}-${figures.children.length}`;
  await takeSnapshot(engine, snapshotName, figures);
  const names = upTo(count).map((child) => `${snapshotName}-${child}`);
  const start = (name: string) => engine.client.create(sandboxes, sandboxOf(name, { restoreFrom: { snapshotName } }));
  const startedMs = await timed(async () => {
    await Promise.all(names.map(start));
    await readyCount(engine, count + 1);
  });
  figures.children.push(startedMs);
  for (const name of names) await engine.client.delete(sandboxes, { namespace, name });
  await engine.client.delete(sandboxSnapshots, { namespace, name: snapshotName });
  await readyCount(engine, 1);
}

async function engineRows(): Promise<Map<number, ForkFigures>> {
  const engine = await RealEngine.open("--sandboxes-ahead", "0");
  try {
    await engine.client.create(sandboxes, sandboxOf("source"));
    await readyCount(engine, 1);
    const rows = new Map<number, ForkFigures>();
    for (const count of counts) {
      const figures: ForkFigures = { snapshot: [], standstill: [], children: [] };
      for (let turn = 0; turn < rounds; turn += 1) await fork(engine, count, figures);
      rows.set(count, figures);
    }
    return rows;
  } finally {
    await engine[Symbol.asyncDispose]();
  }
}

const when = circumstances();
const [alone, forked] = [await hostRows(), await engineRows()];
const cell = (values: readonly number[] | undefined, divisor = 1): string =>
  (quantile(values ?? [], 0.5) / divisor).toFixed(0);
const rows = counts.map((count) => {
  const [host, engine] = [alone.get(count), forked.get(count)];
  const each = [host?.bare, host?.verb, engine?.children].map((values) => cell(values, count));
  const whole = [host?.bare, host?.verb, engine?.children, engine?.snapshot, engine?.standstill];
  return `| ${[count, ...each, ...whole.map((values) => cell(values))].join(" | ")} |`;
});
const text = `# Forks

A Python program with ${memoryMiB} MiB of touched memory, forked; medians of ${rounds} rounds, milliseconds; ${when}. The first three columns are what one child costs where n are started at once, the next three what all of them take: \`runsc restore --background\` alone
until the guests go on, the helper's verb the same, and the engine from the first object until the last child is Ready. A fork takes one snapshot, whose time and standstill follow.

| n | runsc, each | verb, each | engine, each | runsc | verb | engine | snapshot | standstill |
|---|---|---|---|---|---|---|---|---|
${rows.join("\n")}

Made by \`npm run bench -- fork\`.
`;
process.stdout.write(text);
writeFileSync(path.join(import.meta.dirname, "results/fork.md"), text);
