import type { KubeObject, Pod, Resource } from "@agent-sandbox/api";
import {
  ignore,
  networkPolicies,
  persistentVolumeClaims,
  pods,
  sandboxClaims,
  sandboxes,
  sandboxTemplates,
  sandboxWarmPools,
  services,
} from "@agent-sandbox/api";
import type { Client, Clock } from "@agent-sandbox/kube";

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
}

const owners: readonly Resource<KubeObject>[] = [
  sandboxClaims,
  sandboxWarmPools,
  sandboxTemplates,
  sandboxes,
] as unknown as Resource<KubeObject>[];
const dependants: readonly Resource<KubeObject>[] = [
  sandboxes,
  pods,
  services,
  persistentVolumeClaims,
  networkPolicies,
] as unknown as Resource<KubeObject>[];

/** The parts of a cluster that are not ours: scheduler, kubelet and garbage collector, one deterministic step at a time. */
export class Cluster {
  readonly node: NodeBehaviour = {
    unschedulable: () => false,
    unready: () => false,
    ends: () => undefined,
    lingers: () => false,
    frozen: false,
  };
  readonly #client: Client;
  readonly #clock: Clock;
  #addresses = 0;
  #nextNode = 0;

  constructor(client: Client, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  /** One round over everything; true when something was changed. */
  async step(): Promise<boolean> {
    const moved = this.node.frozen ? false : await this.#runPods();
    const collected = await this.#collectGarbage();
    return moved || collected;
  }

  async #runPods(): Promise<boolean> {
    let moved = false;
    for (const pod of (await this.#client.list(pods)).items) moved = (await this.#runPod(pod)) || moved;
    return moved;
  }

  async #runPod(pod: Pod): Promise<boolean> {
    const { name, namespace = "", uid, deletionTimestamp } = pod.metadata;
    if (deletionTimestamp !== undefined) {
      if (this.node.lingers(pod)) return false;
      await this.#client
        .delete(pods, { namespace, name }, { gracePeriodSeconds: 0, ...(uid === undefined ? {} : { uid }) })
        .catch(ignore("NotFound", "Conflict"));
      return true;
    }
    const wanted = this.#statusOf(pod);
    if (wanted === undefined) return false;
    if ((pod.spec.nodeName ?? "") === "" && !this.node.unschedulable(pod)) await this.#place(pod);
    const body = { status: { ...wanted, startTime: new Date(this.#clock.nowMs()).toISOString() } };
    await this.#client
      .patch(pods, { namespace, name }, { type: "merge", body }, { subresource: "status" })
      .catch(ignore("NotFound"));
    return true;
  }

  async #place(pod: Pod): Promise<void> {
    const { name, namespace = "" } = pod.metadata;
    this.#nextNode += 1;
    const target = { apiVersion: "v1", kind: "Node", name: `node-${this.#nextNode % 3}` };
    const path = `/api/v1/namespaces/${namespace}/pods/${name}/binding`;
    const body = { apiVersion: "v1", kind: "Binding", metadata: { name, namespace }, target };
    await this.#client.raw({ method: "POST", path, body }).catch(ignore("NotFound", "Conflict"));
  }

  /** The status the Pod should get next, or undefined when it has it. */
  #statusOf(pod: Pod): Pod["status"] {
    const phase = pod.status?.phase ?? "Pending";
    if (phase === "Succeeded" || phase === "Failed") return undefined;
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
    const ready = !this.node.unready(pod);
    const isReady = pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
    if (phase === "Running" && ready === isReady) return undefined;
    this.#addresses += 1;
    const podIPs = pod.status?.podIPs ?? [{ ip: `10.1.${this.#addresses >> 8}.${this.#addresses & 255}` }];
    return { phase: "Running", podIPs, conditions: [scheduled, { type: "Ready", status: ready ? "True" : "False" }] };
  }

  /** Owners that wait for what they own: the owned goes first, then the finalizer. */
  async #finishForeground(): Promise<boolean> {
    const owned: [Resource<KubeObject>, KubeObject][] = [];
    for (const resource of dependants) {
      for (const object of (await this.#client.list(resource)).items) owned.push([resource, object]);
    }
    let moved = false;
    for (const resource of owners) {
      for (const { metadata } of (await this.#client.list(resource)).items) {
        if (metadata.finalizers?.includes("foregroundDeletion") !== true) continue;
        const mine = owned.filter(([, child]) =>
          child.metadata.ownerReferences?.some(({ uid }) => uid === metadata.uid),
        );
        const { name, namespace = "" } = metadata;
        if (mine.length === 0) {
          const finalizers = metadata.finalizers.filter((finalizer) => finalizer !== "foregroundDeletion");
          const body = { metadata: { finalizers, resourceVersion: metadata.resourceVersion } };
          await this.#client
            .patch(resource, { namespace, name }, { type: "merge", body })
            .catch(ignore("NotFound", "Conflict"));
          moved = true;
        }
        for (const [kind, child] of mine) {
          if (child.metadata.deletionTimestamp !== undefined) continue;
          const waits = kind.resource === "sandboxes" ? { propagationPolicy: "Foreground" as const } : {};
          await this.#client
            .delete(kind, { namespace, name: child.metadata.name }, waits)
            .catch(ignore("NotFound", "Conflict"));
          moved = true;
        }
      }
    }
    return moved;
  }

  async #collectGarbage(): Promise<boolean> {
    const alive = new Set<string>();
    for (const resource of owners) {
      for (const { metadata } of (await this.#client.list(resource)).items) alive.add(metadata.uid ?? "");
    }
    let collected = await this.#finishForeground();
    for (const resource of dependants) {
      for (const { metadata } of (await this.#client.list(resource)).items) {
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
