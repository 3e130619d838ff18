import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { httpTransport, seededRandom, type Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiCall } from "../conformance/api-call.ts";
import { type EmbeddedProcess, openEmbeddedProcess } from "./embedded-process.ts";
import { type CuttingProxy, openCuttingProxy } from "./watching/cutting-proxy.ts";
import { deliveryFaults, type Watched } from "./watching/delivery.ts";
import { informerProgram, type Observer, pythonProgram, startObserver } from "./watching/observer.ts";
import { kinds, Writer } from "./watching/writer.ts";

/** Watches of each client that must go on where an earlier one ended. */
const restartsMin = 1_000;
/** How often the server forgets what the watchers have not seen yet. */
const forgettings = 2;
/** Watchers of each kind whose connections are cut, and whose watches the server ends. */
interface Watchers {
  readonly cut: number;
  readonly closed: number;
}
/** Writers of each kind. */
const lanes = 2;
const seed = 20_261_115;

let dir = "";
let server: EmbeddedProcess | undefined;
let transport: Transport | undefined;
let informers: readonly string[] = [];
let python: readonly string[] = [];

beforeAll(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), "agent-sandbox-watching-"));
  informers = informerProgram(dir);
  python = pythonProgram();
  server = await openEmbeddedProcess();
  transport = httpTransport(server.admin, { protocol: "http1" });
}, 600_000);
afterAll(async () => {
  await transport?.close();
  await server?.[Symbol.asyncDispose]();
  await rm(dir, { recursive: true, force: true });
});

/** What happened: by kind what was written and is there, and what every watcher saw. */
interface Run {
  readonly writers: readonly Writer[];
  readonly watched: readonly Watched[];
  readonly listed: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

/** Watches and writes until enough watches were broken. */
async function runRestarts(program: readonly string[], namespace: string, watchers: Watchers): Promise<Run> {
  const { admin, kubeconfig } = server as EmbeddedProcess;
  const api = new ApiCall(transport as Transport);
  await api.call("POST", "/api/v1/namespaces", {
    body: { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
  });
  const random = seededRandom(seed);
  await using proxy = await openCuttingProxy(Number(new URL(admin.server).port), random);
  const proxied = `https://127.0.0.1:${proxy.port}`;
  const observer = startObserver(program, { kubeconfig, proxied, direct: admin.server, namespace, ...watchers });
  await observer.until(() => observer.listed.every((count) => count > 0));
  const writers = kinds.flatMap((kind) =>
    Array.from({ length: lanes }, (_, lane) => new Writer(api, { kind, namespace, prefix: `lane-${lane}`, random })),
  );
  const stop = new AbortController();
  const writing = Promise.all(writers.map((writer) => writer.run(stop.signal)));
  const breaking = (async () => {
    proxy.setCutting(true);
    for (let round = 1; round <= forgettings; round += 1) {
      await observer.until(() => observer.resumed >= (round * restartsMin) / (forgettings + 1));
      await forget(proxy, observer, writers, watchers.cut);
    }
    await observer.until(() => observer.resumed >= restartsMin);
    proxy.setCutting(false);
    stop.abort();
  })();
  await Promise.all([writing, breaking]);
  const last = kinds.map((_, index) => writers[index * lanes] as Writer);
  for (const writer of last) await writer.create("end");
  const listed = Object.fromEntries(
    await Promise.all(last.map(async (writer, index) => [kinds[index] ?? "", await writer.listed()] as const)),
  );
  return { writers, watched: await observer.watched, listed };
}

/** Keeps the watchers away until the events they need next are gone, then lets them list in peace. */
async function forget(proxy: CuttingProxy, observer: Observer, writers: readonly Writer[], cut: number): Promise<void> {
  proxy.setCutting(false);
  proxy.hold();
  const before = [...observer.listed];
  for (let count = 0; count < 3; count += 1) await Promise.all(writers.map((writer) => writer.next()));
  await server?.compact();
  proxy.release();
  const isCut = (index: number): boolean => index < cut * kinds.length;
  await observer.until(() => observer.listed.every((count, index) => !isCut(index) || count > (before[index] ?? 0)));
  proxy.setCutting(true);
}

interface Client {
  readonly name: string;
  readonly namespace: string;
  readonly program: () => readonly string[];
  readonly watchers: Watchers;
}

// client-go waits before it comes back to a server that cut it off, longer each time; watches that end in time it resumes at once.
const clients: readonly Client[] = [
  { name: "client-go's informers", namespace: "informers", program: () => informers, watchers: { cut: 6, closed: 12 } },
  { name: "the Python client", namespace: "python", program: () => python, watchers: { cut: 5, closed: 1 } },
];

test.each(clients)("watch restarts: $name miss nothing", { timeout: 600_000 }, async (client) => {
  const { namespace, watchers } = client;
  const { writers, watched, listed } = await runRestarts(client.program(), namespace, watchers);
  expect(watched).toHaveLength(kinds.length * (watchers.cut + watchers.closed));
  for (const [index, one] of watched.entries()) {
    const kind = one.kind as (typeof kinds)[number];
    const first = kinds.indexOf(kind) * lanes;
    const written = new Map(writers.slice(first, first + lanes).flatMap((writer) => [...writer.written]));
    expect(deliveryFaults(written, one), `watcher ${index} of ${kind}`).toEqual([]);
    expect(one.stored).toEqual(listed[kind]);
    // The check must be able to fail: without its last record, every watcher has lost something.
    expect(deliveryFaults(written, { ...one, records: one.records.slice(0, -1) })).not.toEqual([]);
    if (index < watchers.cut * kinds.length) expect(one.gaps.length).toBeGreaterThan(forgettings);
  }
  const resumed = watched.reduce((sum, one) => sum + one.resumed, 0);
  expect(resumed).toBeGreaterThanOrEqual(restartsMin);
  const records = watched.reduce((sum, one) => sum + one.records.length, 0);
  const lists = watched.reduce((sum, one) => sum + one.gaps.length, 0);
  process.stdout.write(`${namespace}: ${resumed} watches resumed, ${lists} lists, ${records} notifications\n`);
});
