import {
  formatTimestamp,
  isJsonObject,
  type JsonObject,
  type KubeObject,
  nodes,
  notFound,
  type Pod,
  pods,
} from "@agent-sandbox/api";
import type { Clock } from "@agent-sandbox/kube";
import type { ObjectReader } from "../auth/object-reader.ts";
import { listAt, numberAt, objectAt, stringAt } from "../json/json.ts";
import type { VirtualRequest, VirtualResource } from "../request/virtual-resource.ts";
import type { NodeDialer } from "../scope/node-dialer.ts";

/** What usage is read from. */
export interface UsageMetricsOptions {
  readonly reader: ObjectReader;
  readonly dialer: NodeDialer;
  readonly clock: Clock;
}

const group = "metrics.k8s.io";
const version = "v1beta1";

/** A rate over less than this says little. */
const windowMinMs = 1_000;

/** A rate over more than this says little about the present. */
const windowMaxMs = 120_000;

/** Bytes of a node's answer, at most; a thousand pods need less. */
const summaryMaxBytes = 16 * 1024 * 1024;

/** Where a node's use as a whole stands among those of its containers. */
const machineKey = "";

/** One container at one moment; CPU since its start. */
interface Reading {
  readonly atMs: number;
  readonly cpuNanos: number;
  readonly memoryBytes: number;
}

/** What a node said: readings by `podUid/container`, and the pods they belong to. */
interface NodeReadings {
  readonly atMs: number;
  readonly containers: ReadonlyMap<string, Reading>;
}

interface Usage {
  readonly cpuNanosPerSecond: number;
  readonly memoryBytes: number;
  readonly windowMs: number;
  readonly atMs: number;
}

/**
 * PodMetrics and NodeMetrics, for `kubectl top`. Nothing is polled: a question reads the nodes, and the rate is that since
 * the question before, or over a second where there was none. Bound: one reading per node.
 */
export class UsageMetrics {
  readonly #options: UsageMetricsOptions;
  readonly #before = new Map<string, NodeReadings>();

  constructor(options: UsageMetricsOptions) {
    this.#options = options;
  }

  /** The kinds to serve. */
  resources(): VirtualResource[] {
    return [
      {
        group,
        version,
        resource: "pods",
        kind: "PodMetrics",
        namespaced: true,
        get: (request) => this.#onePod(request),
        list: ({ namespace }) => this.#pods(namespace),
      },
      {
        group,
        version,
        resource: "nodes",
        kind: "NodeMetrics",
        namespaced: false,
        get: (request) => this.#oneNode(request),
        list: () => this.#nodes(),
      },
    ];
  }

  async #onePod({ namespace, name }: VirtualRequest): Promise<KubeObject> {
    const found = (await this.#pods(namespace)).find(({ metadata }) => metadata.name === name);
    if (found === undefined) throw notFound({ group, resource: "pods", name });
    return found;
  }

  async #oneNode({ name }: VirtualRequest): Promise<KubeObject> {
    const found = (await this.#nodes()).find(({ metadata }) => metadata.name === name);
    if (found === undefined) throw notFound({ group, resource: "nodes", name });
    return found;
  }

  async #pods(namespace: string): Promise<KubeObject[]> {
    const all = await this.#options.reader.list(pods, namespace === "" ? undefined : namespace);
    const usage = await this.#usage(new Set(all.flatMap(({ spec }) => spec?.nodeName ?? [])));
    return all.flatMap((pod) => {
      const ofNode = usage.get(pod.spec?.nodeName ?? "");
      return ofNode === undefined ? [] : podMetrics(pod, ofNode);
    });
  }

  async #nodes(): Promise<KubeObject[]> {
    const all = await this.#options.reader.list(nodes);
    const usage = await this.#usage(new Set(all.map(({ metadata }) => metadata.name)));
    return all.flatMap(({ metadata }) => {
      const ofNode = usage.get(metadata.name);
      if (ofNode === undefined) return [];
      const machine = ofNode.get(machineKey);
      // A node that says nothing about itself uses at least what its pods do.
      const shown = machine === undefined ? ofNode : new Map([[machineKey, machine]]);
      return metricsObject("NodeMetrics", metadata, { usage: shown, body: { usage: amounts(total(shown)) } });
    });
  }

  /** Usage by node and `podUid/container`; a node that cannot be asked is left out, as metrics-server does. */
  async #usage(nodeNames: ReadonlySet<string>): Promise<Map<string, Map<string, Usage>>> {
    const found = await Promise.all(
      [...nodeNames].map(async (name) => [name, await this.#nodeUsage(name).catch(() => undefined)] as const),
    );
    return new Map(found.flatMap(([name, usage]) => (usage === undefined ? [] : [[name, usage] as const])));
  }

  async #nodeUsage(nodeName: string): Promise<Map<string, Usage>> {
    const { clock } = this.#options;
    const known = this.#before.get(nodeName);
    const ageMs = known === undefined ? Number.POSITIVE_INFINITY : clock.nowMs() - known.atMs;
    const before = known !== undefined && ageMs <= windowMaxMs ? known : await this.#read(nodeName);
    const elapsedMs = clock.nowMs() - before.atMs;
    if (elapsedMs < windowMinMs) {
      await new Promise<void>((resolve) => void clock.setTimer(windowMinMs - elapsedMs, resolve));
    }
    const after = await this.#read(nodeName);
    this.#before.set(nodeName, after);
    return ratesBetween(before, after);
  }

  async #read(nodeName: string): Promise<NodeReadings> {
    const { dialer, clock } = this.#options;
    const { status, body } = await dialer.request(nodeName, { method: "GET", path: "/stats/summary", headers: {} });
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of body) {
      bytes += chunk.byteLength;
      if (bytes > summaryMaxBytes) throw new Error(`node ${nodeName} answered more than ${summaryMaxBytes} bytes`);
      chunks.push(chunk);
    }
    if (status !== 200) throw new Error(`node ${nodeName} answered ${status}`);
    return { atMs: clock.nowMs(), containers: readingsOf(JSON.parse(Buffer.concat(chunks).toString()) as JsonObject) };
  }
}

function readingsOf(summary: JsonObject): Map<string, Reading> {
  const found = new Map<string, Reading>();
  const machine = readingOf(objectAt(summary, "node"));
  if (machine !== undefined) found.set(machineKey, machine);
  for (const pod of listAt(summary, "pods").filter(isJsonObject)) {
    const uid = stringAt(objectAt(pod, "podRef"), "uid") ?? "";
    for (const container of listAt(pod, "containers").filter(isJsonObject)) {
      const reading = readingOf(container);
      if (reading !== undefined) found.set(`${uid}/${stringAt(container, "name") ?? ""}`, reading);
    }
  }
  return found;
}

function readingOf(stats: JsonObject | undefined): Reading | undefined {
  const [cpu, memory] = [objectAt(stats, "cpu"), objectAt(stats, "memory")];
  const cpuNanos = numberAt(cpu, "usageCoreNanoSeconds");
  if (cpuNanos === undefined) return undefined;
  const atMs = Date.parse(stringAt(cpu, "time") ?? "");
  return { atMs, cpuNanos, memoryBytes: numberAt(memory, "workingSetBytes") ?? 0 };
}

function ratesBetween(before: NodeReadings, after: NodeReadings): Map<string, Usage> {
  const usage = new Map<string, Usage>();
  for (const [key, reading] of after.containers) {
    const old = before.containers.get(key);
    const windowMs = old === undefined ? 0 : reading.atMs - old.atMs;
    // A container that started in between, or anew, has no rate yet.
    if (old === undefined || windowMs <= 0 || reading.cpuNanos < old.cpuNanos) continue;
    const cpuNanosPerSecond = ((reading.cpuNanos - old.cpuNanos) * 1000) / windowMs;
    usage.set(key, { cpuNanosPerSecond, memoryBytes: reading.memoryBytes, windowMs, atMs: reading.atMs });
  }
  return usage;
}

function podMetrics(pod: Pod, ofNode: ReadonlyMap<string, Usage>): KubeObject[] {
  const { uid = "" } = pod.metadata;
  const measured = (pod.spec?.containers ?? []).flatMap((container) => {
    const usage = ofNode.get(`${uid}/${container.name}`);
    return usage === undefined ? [] : [[container.name, usage] as const];
  });
  if (measured.length === 0) return [];
  const containers = measured.map(([container, usage]) => ({ name: container, usage: amounts(usage) }));
  return metricsObject("PodMetrics", pod.metadata, { usage: new Map(measured), body: { containers } });
}

function metricsObject(
  kind: string,
  { name, namespace, labels }: KubeObject["metadata"],
  { usage, body }: { usage: ReadonlyMap<string, Usage>; body: object },
): KubeObject[] {
  const { atMs, windowMs } = total(usage);
  if (windowMs === 0) return [];
  const timestamp = formatTimestamp(atMs);
  const metadata = {
    name,
    ...(namespace !== undefined && { namespace }),
    creationTimestamp: timestamp,
    ...(labels !== undefined && { labels }),
  };
  const window = `${(windowMs / 1000).toFixed(3)}s`;
  return [{ kind, apiVersion: `${group}/${version}`, metadata, timestamp, window, ...body } as KubeObject];
}

function total(usage: ReadonlyMap<string, Usage>): Usage {
  const sum = { cpuNanosPerSecond: 0, memoryBytes: 0, windowMs: 0, atMs: 0 };
  for (const each of usage.values()) {
    sum.cpuNanosPerSecond += each.cpuNanosPerSecond;
    sum.memoryBytes += each.memoryBytes;
    sum.windowMs = Math.max(sum.windowMs, each.windowMs);
    sum.atMs = Math.max(sum.atMs, each.atMs);
  }
  return sum;
}

function amounts({ cpuNanosPerSecond, memoryBytes }: Usage): { cpu: string; memory: string } {
  return { cpu: `${Math.round(cpuNanosPerSecond)}n`, memory: `${Math.ceil(memoryBytes / 1024)}Ki` };
}
