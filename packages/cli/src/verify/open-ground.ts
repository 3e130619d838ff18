import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import net from "node:net";
import { type Namespace, type Node, namespaces, nodes, services } from "@agent-sandbox/api";
import { ignore } from "@agent-sandbox/api/api-error";
import { type EngineRecord } from "@agent-sandbox/kube/engine-record";
import type { Engine } from "@agent-sandbox/sdk";
import { readEngineRecord } from "@agent-sandbox/sdk/engine/engine-record";
import { findProbe } from "@agent-sandbox/server/main/programs";
import { runtimeVersions } from "@agent-sandbox/server/main/runtime-versions";
import { CliError } from "../cli-error.ts";
import type { Place, Target } from "./attempt.ts";
import { Boxes, readTemplate } from "./boxes.ts";
import type { Ground, HostGround, Mark, OutsideGround } from "./ground.ts";
import { kernelWords, machineAddresses, observeHost } from "./host-ground.ts";
import { startHolder, tryOnHost } from "./host-probe.ts";
import { openOutside } from "./outside.ts";

/** What the user chose. */
export interface GroundOptions {
  readonly engine: Engine;
  /** The engine of this machine's data directory, where that is the one. */
  readonly dataDir: string;
  /** Made for the run and deleted with all that is in it, unless the user names one. */
  readonly namespace: string | undefined;
  readonly image: string | undefined;
  readonly runtime: string | undefined;
  /** A SandboxTemplate of `namespace` whose Pods are tested. */
  readonly template: string | undefined;
  readonly onProgress: (text: string) => void;
  readonly signal: AbortSignal;
}

/** Small, so that filling them takes a moment; large enough for the probe to run. */
const boxLimits = { memoryBytes: 256 * 2 ** 20, diskBytes: 48 * 2 ** 20 };

const places: readonly Place[] = ["host", "prisoner", "neighbour", "confined"];

/** Prepares everything that probes work with. What it makes is in `stack`, which removes it also where this fails half-way. */
export async function openGround(options: GroundOptions, stack: AsyncDisposableStack): Promise<Ground> {
  const { engine, onProgress, signal } = options;
  const run = `verify-${randomBytes(4).toString("hex")}`;
  const marks = marksOf(run);
  const port = 20_000 + (randomBytes(2).readUInt16BE() % 10_000);
  const program = findProbe();
  const record = process.getuid?.() === 0 ? await localRecord(options) : undefined;
  if (record !== undefined) stack.use(await lockMachine());
  const namespace = options.namespace ?? (await ownNamespace(engine, run, stack));
  const podTemplate =
    options.template === undefined ? undefined : await readTemplate(engine, engine.namespace, options.template);
  onProgress("making three sandboxes");
  const { image, runtime } = options;
  const boxes = stack.use(
    new Boxes({ engine, namespace, image, runtime, podTemplate, ...boxLimits, program, marks, port, signal }),
  );
  await boxes.open();
  const addresses = {
    prisoner: await boxes.address("prisoner"),
    neighbour: await boxes.address("neighbour"),
    confined: await boxes.address("confined"),
  };
  const node = await nodeOf(engine, await boxes.node("prisoner"));
  const machine = record && (await openMachine({ record, node, marks, port, program, addresses, onProgress, stack }));
  const apiService = await apiServiceOf(engine);
  return {
    engine,
    namespace,
    isOwn: await engine.isOwn(),
    image,
    marks,
    port,
    addresses,
    ...machine,
    // The kernel of this machine says nothing about that of a cluster's node.
    nodeKernel:
      machine?.host.kernel ??
      node?.status?.nodeInfo?.kernelVersion ??
      (engine.kind === "local" ? kernelWords() : undefined),
    kubelets: kubeletsOf(node),
    ...(apiService !== undefined && { apiService }),
    limits: boxLimits,
    runtimes: record === undefined ? runtimesOf(node) : await runtimeVersions({ withRunc: runtime === "runc" }),
    tryAt: (place, attempts, stop) =>
      place === "host" ? tryOnHost(program, attempts, stop) : boxes.tryAt(place, attempts, stop),
  };
}

function marksOf(run: string): Record<Place, Mark> {
  const key = randomBytes(4).readUInt32BE() >>> 2;
  const entries = places.map((place, index) => [place, { name: `${run}-${place}`, key: key + index + 1 }] as const);
  return Object.fromEntries(entries) as Record<Place, Mark>;
}

async function localRecord({ engine, dataDir }: GroundOptions): Promise<EngineRecord | undefined> {
  if (engine.kind !== "local") return undefined;
  return readEngineRecord(dataDir);
}

/** One run at a time has the names of the outside; an abstract socket is free again when its holder dies, however it does. */
async function lockMachine(): Promise<AsyncDisposable> {
  const server = net.createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) => reject(new CliError("another verify is running on this machine", { cause })));
    server.listen("\0agent-sandbox-verify", resolve);
  });
  return { [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) };
}

async function ownNamespace({ client }: Engine, name: string, stack: AsyncDisposableStack): Promise<string> {
  const object: Namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name } };
  await client.create(namespaces, object);
  stack.defer(() => client.delete(namespaces, { name }).catch(ignore("NotFound")));
  return name;
}

/** The node that the sandbox is on, where the user may see nodes. */
function nodeOf({ client }: Engine, name: string | undefined): Promise<Node | undefined> {
  return name === undefined ? Promise.resolve(undefined) : client.get(nodes, { name }).catch(() => undefined);
}

/** A kubelet names what it drives: `containerd://1.7.27`. What that drives in turn it does not say. */
function runtimesOf(node: Node | undefined): Record<string, string> {
  const [component = "", version] = (node?.status?.nodeInfo?.containerRuntimeVersion ?? "").split("://");
  return component === "containerd" && version !== undefined ? { containerd: version } : {};
}

function kubeletsOf(node: Node | undefined): Target[] {
  const port = node?.status?.daemonEndpoints?.kubeletEndpoint?.Port;
  if (port === undefined) return [];
  return (node?.status?.addresses ?? [])
    .filter(({ type }) => type === "InternalIP")
    .map(({ address }) => ({ address, port }));
}

async function apiServiceOf({ client }: Engine): Promise<Target | undefined> {
  const found = await client.get(services, { namespace: "default", name: "kubernetes" }).catch(() => undefined);
  const address = found?.spec?.clusterIP;
  return address === undefined || address === "None"
    ? undefined
    : { address, port: found?.spec?.ports?.[0]?.port ?? 443 };
}

interface MachineQuestion {
  readonly record: EngineRecord;
  readonly node: Node | undefined;
  readonly marks: Readonly<Record<Place, Mark>>;
  readonly port: number;
  readonly program: string;
  readonly addresses: Ground["addresses"];
  readonly onProgress: (text: string) => void;
  readonly stack: AsyncDisposableStack;
}

/** The machine's own marks and listeners, and the outside. Its port is another than the sandboxes', whose loopback is not the machine's. */
async function openMachine(question: MachineQuestion): Promise<{ host: HostGround; outside: OutsideGround }> {
  const { record, node, marks, port, program, addresses, onProgress, stack } = question;
  onProgress("playing the outside");
  const podCidr = node?.spec?.podCIDR;
  if (podCidr === undefined) throw new CliError("the node has not said which addresses its sandboxes have");
  const host = observeHost({ record, gateway: gatewayOf(podCidr), port: port + 1 });
  const { name, key } = marks.host;
  stack.defer(() => rmSync(`/tmp/${name}`, { force: true }));
  const listen = host.services.map((target) => `${target.address}:${target.port}`);
  stack.use(await startHolder(program, name, { holding: { key, files: [`/tmp/${name}`], listen } }));
  const sandboxes = Object.values(addresses);
  const taken = machineAddresses();
  const outside = stack.use(await openOutside({ program, name: `${name}-outside`, sandboxes, podCidr, taken }));
  return { host, outside };
}

/** The first address of the range. */
function gatewayOf(podCidr: string): string {
  const bytes = (podCidr.split("/")[0] ?? "").split(".").map(Number);
  return [...bytes.slice(0, 3), (bytes[3] ?? 0) + 1].join(".");
}
