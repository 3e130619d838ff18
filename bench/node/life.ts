import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { nodes, type Pod, pods } from "@agent-sandbox/api";
import type { Credentials } from "@agent-sandbox/kube";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { ProcessService } from "../../packages/server/src/node/proto/process.gen.ts";
import type { SandboxdClient } from "../../packages/server/src/node/streams/sandboxd-client.ts";
import { execAtKubelet } from "../../test/node/pod-exec.ts";
import { isReady, type RealEngine } from "../../test/node/real-engine.ts";

/** After this the daemon inside a new sandbox is asleep as well. */
const settleMs = 100;

/** Opens a watch on one pod; `seen` resolves with the first event that satisfies the condition. */
function watchPod(
  engine: RealEngine,
  name: string,
  condition: (type: string, pod: Pod) => boolean,
): { readonly seen: Promise<Pod> } {
  const stop = new AbortController();
  const select = { namespace: "default", fieldSelector: `metadata.name=${name}`, signal: stop.signal };
  const seen = (async () => {
    for await (const event of engine.client.watch(pods, select)) {
      if (event.type === "BOOKMARK" || !condition(event.type, event.object as Pod)) continue;
      stop.abort();
      return event.object as Pod;
    }
    throw new Error(`the watch ended before ${name} got there`);
  })();
  return { seen };
}

/** Resolves when a pod is Ready, told by a watch that is open before the pod is made. */
export async function startAndWait(engine: RealEngine, name: string): Promise<Pod> {
  const { seen } = watchPod(engine, name, (_type, pod) => isReady(pod));
  await engine.startPod(name);
  return seen;
}

/** Asks a pod to end, as `kubectl delete` does, and resolves when the API no longer has it. */
export async function stopAndWait(engine: RealEngine, name: string): Promise<void> {
  const { seen } = watchPod(engine, name, (type) => type === "DELETED");
  await engine.client.delete(pods, { namespace: "default", name }, { gracePeriodSeconds: 30 });
  await seen;
}

/** Resolves when the node has given back all that a pod had: its record is the last of it. */
export async function freed(engine: RealEngine, pod: Pod): Promise<void> {
  while (existsSync(path.join(engine.dataDir, "engine/node/sandboxes", pod.metadata.uid ?? ""))) await sleep(1);
}

/** Resolves when the node has a sandbox made ahead; its pipe is there from its start until a Pod takes it. */
export async function sandboxWaits({ dataDir }: RealEngine): Promise<void> {
  const places = path.join(dataDir, "host/containers");
  const isThere = (id: string): boolean =>
    existsSync(path.join(places, id, "waiting.name")) &&
    (JSON.parse(readFileSync(path.join(places, id, "record.json"), "utf8")) as { running: boolean }).running;
  while (!readdirSync(places).some(isThere)) await sleep(10);
  // The node learns of it with the answer that follows.
  await sleep(settleMs);
}

/** The node's own endpoint, reached past the API server. */
export async function kubeletOf(engine: RealEngine): Promise<(pod: string) => Promise<void>> {
  const { items } = await engine.client.list(nodes);
  const [node] = items;
  const port = node?.status?.daemonEndpoints?.kubeletEndpoint?.Port ?? 0;
  const door = await engine.place.openDoor(port, path.join(path.dirname(engine.dataDir), "kubelet.sock"));
  const credentials: Credentials = {
    ...engine.credentials,
    server: `https://127.0.0.1:${door}`,
    serverName: node?.metadata.name ?? "",
  };
  return async (pod) => {
    const question = { namespace: "default", pod, container: "main", command: ["/usr/bin/true"] };
    const { exitCode } = await execAtKubelet(credentials, question);
    if (exitCode !== 0) throw new Error(`the command ended with ${exitCode}`);
  };
}

/** The daemon of a sandbox, over a kept connection. */
export async function daemonOf(engine: RealEngine, pod: Pod): Promise<SandboxdClient> {
  const socket = path.join(path.dirname(engine.dataDir), `${pod.metadata.name}.sock`);
  const door = await engine.place.openDoor(49_900, socket, pod.status?.podIP ?? "");
  return createClient(ProcessService, createGrpcTransport({ baseUrl: `http://127.0.0.1:${door}` }));
}

/** Runs a command through a daemon. */
export async function execThroughDaemon(daemon: SandboxdClient): Promise<void> {
  for await (const { event } of daemon.start({ spec: { command: ["/usr/bin/true"] } })) {
    if (event.case === "exit" && event.value.code === 0) return;
  }
  throw new Error("the command did not end well");
}
