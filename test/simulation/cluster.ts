import type { KubeObject, ObjectMeta, Pod, Resource, Sandbox } from "@agent-sandbox/api";
import {
  ignore,
  networkPolicies,
  persistentVolumeClaims,
  pods,
  restoreOf,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
  services,
  standsStill,
} from "@agent-sandbox/api";
import type { Client } from "@agent-sandbox/kube";
import type { Ground } from "./ground.ts";
import type { SleepNode } from "./sleep-node.ts";

/** What a node does with Pods; a test may change it at any time. */
export interface NodeBehaviour {
  /** Pods of these names are never placed. */
  unschedulable: (pod: Pod) => boolean;
  /** Pods that run but never become Ready. */
  unready: (pod: Pod) => boolean;
  /** Pods that end as soon as they run. */
  ends: (pod: Pod) => "Succeeded" | "Failed" | undefined;
  /** Deleted Pods stay terminating while this says so. */
  lingers: (pod: Pod) => boolean;
  /** Nothing happens to Pods at all. */
  frozen: boolean;
  /** Carries out wishes for deep sleep; without one, every Pod is of a kubelet that does not. */
  sleeper: SleepNode | undefined;
}

/** A Pod with this annotation ends as it says, as soon as it runs. */
export const endsAnnotation = "simulation-ends";

const owners: readonly Resource<KubeObject>[] = [sandboxes, sandboxTemplates, sandboxWarmPools, sandboxClaims];
const dependants: readonly Resource<KubeObject>[] = [
  pods,
  services,
  persistentVolumeClaims,
  networkPolicies,
  sandboxes,
];

type Everything = ReadonlyMap<Resource<KubeObject>, readonly KubeObject[]>;

/** The parts of a cluster that are not ours: scheduler, kubelet and garbage collector, one deterministic step at a time. */
export class Cluster {
  readonly node: NodeBehaviour;
  readonly #client: Client;
  readonly #ground: Ground;
  #restedAt = -1;
  #addresses = 0;
  #nextNode = 0;

  constructor(client: Client, ground: Ground) {
    this.#client = client;
    this.#ground = ground;
    const behaviour: NodeBehaviour = {
      unschedulable: () => false,
      unready: () => false,
      ends: ({ metadata }) => metadata.annotations?.[endsAnnotation] as "Succeeded" | "Failed" | undefined,
      lingers: () => false,
      frozen: false,
      sleeper: undefined,
    };
    // A controller that rested may have something to do once it behaves differently.
    const onChange = (): void => void (this.#restedAt = -1);
    this.node = new Proxy(behaviour, {
      set: (target, property, value) => {
        onChange();
        return Reflect.set(target, property, value);
      },
    });
  }

  /** One round over everything; true when something was changed. */
  async step(): Promise<boolean> {
    const revision = this.#ground.revision();
    if (revision === this.#restedAt) return false;
    const all = this.#read();
    const moved = this.node.frozen ? false : await this.#runPods(all);
    const finished = await this.#finishForeground(all);
    const collected = await this.#collectGarbage(all);
    const changed = moved || finished || collected;
    if (!changed) this.#restedAt = revision;
    return changed;
  }

  #read(): Everything {
    return new Map([...new Set([...dependants, ...owners])].map((kind) => [kind, this.#ground.read(kind)]));
  }

  async #runPods(all: Everything): Promise<boolean> {
    let moved = false;
    for (const pod of (all.get(pods) ?? []) as Pod[]) moved = (await this.#runPod(pod, all)) || moved;
    return moved;
  }

  async #runPod(pod: Pod, all: Everything): Promise<boolean> {
    if (pod.metadata.deletionTimestamp !== undefined) {
      return !this.node.lingers(pod) && (await this.#ground.write(pods, pod, "delete"));
    }
    const boxes = (all.get(sandboxes) ?? []) as Sandbox[];
    const wanted = this.#statusOf(pod, boxes);
    if (wanted === undefined) return this.#sleep(pod, boxes);
    const status = { ...pod.status, ...wanted, startTime: new Date(this.#ground.clock.nowMs()).toISOString() };
    const placed = (pod.spec.nodeName ?? "") !== "" || this.node.unschedulable(pod);
    if (placed) return this.#ground.write(pods, pod, { status });
    this.#nextNode += 1;
    return this.#ground.write(pods, pod, { status, spec: { ...pod.spec, nodeName: `node-${this.#nextNode % 3}` } });
  }

  /** Lets the node go on with a Pod that is otherwise as it should be. */
  async #sleep(pod: Pod, boxes: readonly Sandbox[]): Promise<boolean> {
    const move = pod.status?.phase === "Running" ? (this.node.sleeper?.moves(pod, boxes) ?? "rests") : "rests";
    if (typeof move === "string") return move === "later";
    const others = pod.status?.conditions?.filter(({ type }) => type !== move.type) ?? [];
    return this.#ground.write(pods, pod, { status: { ...pod.status, conditions: [...others, move] } });
  }

  /** The status the Pod should get next, or undefined when it has it. */
  #statusOf(pod: Pod, boxes: readonly Sandbox[]): Pod["status"] {
    const phase = pod.status?.phase ?? "Pending";
    if (phase === "Succeeded" || phase === "Failed" || restoreOf(pod)?.state === "failed") return undefined;
    if (this.node.unschedulable(pod)) {
      const known = pod.status?.conditions?.some(({ type }) => type === "PodScheduled");
      const condition = {
        type: "PodScheduled",
        status: "False",
        reason: "Unschedulable",
        message: "0/3 nodes are available",
      };
      return known === true ? undefined : { phase: "Pending", conditions: [condition] };
    }
    const scheduled = { type: "PodScheduled", status: "True" };
    const end = this.node.ends(pod);
    if (end !== undefined) return { phase: end, conditions: [scheduled, { type: "Ready", status: "False" }] };
    const ready = !this.node.unready(pod) && !standsStill(pod);
    const isReady = pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
    if (phase === "Running" && ready === isReady) return undefined;
    const kept = pod.status?.conditions?.filter(({ type }) => type !== "PodScheduled" && type !== "Ready") ?? [];
    const start = phase === "Running" ? undefined : this.node.sleeper?.starts(pod, boxes);
    const extra = [...kept, ...(start?.conditions ?? [])];
    if (start?.hasFailed === true) return { phase: "Pending", conditions: [scheduled, ...extra] };
    this.#addresses += 1;
    const podIPs = pod.status?.podIPs ?? [{ ip: `10.1.${this.#addresses >> 8}.${this.#addresses & 255}` }];
    const isTrue = { type: "Ready", status: ready ? "True" : "False" };
    return { phase: "Running", podIPs, conditions: [scheduled, isTrue, ...extra] };
  }

  /** Owners that wait for what they own: the owned goes first, then the finalizer. */
  async #finishForeground(all: Everything): Promise<boolean> {
    let moved = false;
    for (const resource of owners) {
      for (const { metadata } of all.get(resource) ?? []) {
        if (metadata.finalizers?.includes("foregroundDeletion") !== true) continue;
        moved = (await this.#finishOwner(resource, metadata, all)) || moved;
      }
    }
    return moved;
  }

  async #finishOwner(resource: Resource<KubeObject>, metadata: ObjectMeta, all: Everything): Promise<boolean> {
    const { name, namespace = "", resourceVersion } = metadata;
    let moved = false;
    let left = 0;
    for (const kind of dependants) {
      for (const child of all.get(kind) ?? []) {
        if (child.metadata.ownerReferences?.some(({ uid }) => uid === metadata.uid) !== true) continue;
        left += 1;
        if (child.metadata.deletionTimestamp !== undefined) continue;
        const waits = kind.resource === "sandboxes" ? { propagationPolicy: "Foreground" as const } : {};
        await this.#client
          .delete(kind, { namespace, name: child.metadata.name }, waits)
          .catch(ignore("NotFound", "Conflict"));
        moved = true;
      }
    }
    if (left > 0) return moved;
    const finalizers = metadata.finalizers?.filter((finalizer) => finalizer !== "foregroundDeletion");
    const body = { metadata: { finalizers, resourceVersion } };
    await this.#client
      .patch(resource, { namespace, name }, { type: "merge", body })
      .catch(ignore("NotFound", "Conflict"));
    return true;
  }

  async #collectGarbage(all: Everything): Promise<boolean> {
    const alive = new Set<string>();
    for (const resource of owners) for (const { metadata } of all.get(resource) ?? []) alive.add(metadata.uid ?? "");
    let collected = false;
    for (const resource of dependants) {
      for (const { metadata } of all.get(resource) ?? []) {
        const references = metadata.ownerReferences ?? [];
        const orphaned = references.length > 0 && references.every(({ uid }) => !alive.has(uid));
        if (!orphaned || metadata.deletionTimestamp !== undefined) continue;
        const { name, namespace = "", uid } = metadata;
        await this.#client
          .delete(resource, { namespace, name }, uid === undefined ? {} : { uid })
          .catch(ignore("NotFound", "Conflict"));
        collected = true;
      }
    }
    return collected;
  }
}
