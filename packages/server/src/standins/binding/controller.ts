import type { KubeObject, Resource } from "@agent-sandbox/api";
import {
  type Binding,
  findCondition,
  formatTimestamp,
  ignore,
  keyOf,
  namespacedKey,
  type Pod,
  type PodCondition,
  pods,
} from "@agent-sandbox/api";
import {
  type Controller,
  defineController,
  done,
  EventRecorder,
  type Outcome,
  type WorkQueue,
} from "@agent-sandbox/kube";
import { byClaim, byNode, type Caches } from "../caches.ts";
import { onChange } from "../on-change.ts";
import type { StandinContext } from "../standin-context.ts";
import { NodeLedger } from "./node-ledger.ts";
import { isWaiting, planBinding } from "./plan.ts";
import { podRequests } from "./pod-requests.ts";

/** Writes under way at once: enough to share a commit of the store, few enough not to crowd out others. */
const bindingsMax = 16;

/** Binds Pods to nodes while there is room, and says on the Pod why not when there is none. Keys are Pods. */
export function binding(context: StandinContext, caches: Caches): Controller {
  const scheduler = new Scheduler(context, caches);
  return defineController({
    name: "binding",
    clock: context.clock,
    telemetry: context.telemetry,
    caches: [caches.pods, caches.nodes, caches.claims],
    // A decision and its place in the books are one step without a wait, so that several writes may be under way at once.
    workers: bindingsMax,
    observe: (queue) => scheduler.observe(queue),
    reconcile: (key, signal) => scheduler.reconcile(key, signal),
  });
}

class Scheduler {
  readonly #context: StandinContext;
  readonly #caches: Caches;
  /** The uids of Pods that were bound and that the cache still shows as waiting. Bound: the watch's delay in Pods. */
  readonly #assumed = new Set<string>();
  readonly #ledger = new NodeLedger();
  readonly #events: EventRecorder;

  constructor(context: StandinContext, caches: Caches) {
    this.#context = context;
    this.#caches = caches;
    const { client, clock, logger } = context;
    this.#events = new EventRecorder({
      client,
      clock,
      reportingController: "default-scheduler",
      reportingInstance: "agent-sandbox",
      onError: (error) => logger.debug({ err: error }, "event not written"),
    });
  }

  observe(queue: WorkQueue): void {
    const { pods: podCache, nodes, claims } = this.#caches;
    const wakeWaiting = () => {
      for (const pod of podCache.byIndex(byNode, "")) if (isWaiting(pod)) queue.add(keyOf(pod));
    };
    podCache.addHandler({
      onAdd: (pod) => this.#seen(pod, queue),
      onUpdate: (old, pod) => {
        this.#seen(pod, queue);
        if (!isFinished(old) && isFinished(pod)) wakeWaiting();
      },
      onDelete: (pod) => {
        this.#assumed.delete(pod.metadata.uid ?? "");
        this.#ledger.free(pod.metadata.uid ?? "");
        if ((pod.spec?.nodeName ?? "") !== "") wakeWaiting();
      },
    });
    onChange(nodes, wakeWaiting);
    onChange(claims, (claim) => {
      for (const pod of podCache.byIndex(byClaim, keyOf(claim))) if (isWaiting(pod)) queue.add(keyOf(pod));
    });
  }

  #seen(pod: Pod, queue: WorkQueue): void {
    const { uid = "" } = pod.metadata;
    const nodeName = pod.spec?.nodeName ?? "";
    if (isFinished(pod)) this.#ledger.free(uid);
    else if (nodeName !== "") this.#ledger.book(uid, nodeName, podRequests(pod));
    if (nodeName !== "") this.#assumed.delete(uid);
    else if (isWaiting(pod)) queue.add(keyOf(pod));
  }

  async reconcile(key: string, signal: AbortSignal): Promise<Outcome> {
    const { pods: podCache, nodes, claims } = this.#caches;
    const pod = podCache.get(key);
    if (pod === undefined || this.#assumed.has(pod.metadata.uid ?? "")) return done;
    const plan = planBinding({
      pod,
      nodes: nodes.list(),
      taken: (nodeName) => this.#ledger.taken(nodeName),
      claim: (name) => claims.get(namespacedKey(pod.metadata.namespace, name)),
    });
    if (plan.kind === "skip") return done;
    if (plan.kind === "bind") return this.#bind(pod, plan.nodeName, signal);
    return this.#refuse(pod, plan.message, signal);
  }

  async #bind(pod: Pod, nodeName: string, signal: AbortSignal): Promise<Outcome> {
    const { namespace = "", name, uid = "" } = pod.metadata;
    const body: Binding = {
      apiVersion: "v1",
      kind: "Binding",
      metadata: { namespace, name, uid },
      target: { apiVersion: "v1", kind: "Node", name: nodeName },
    };
    this.#assumed.add(uid);
    this.#ledger.book(uid, nodeName, podRequests(pod));
    try {
      await this.#context.client.create(pods as Resource<KubeObject>, body as KubeObject, {
        subresource: "binding",
        signal,
      });
    } catch (error) {
      this.#assumed.delete(uid);
      // A binding whose answer was lost may have been seen meanwhile: then the place is taken all the same.
      if ((this.#caches.pods.get(keyOf(pod))?.spec?.nodeName ?? "") === "") this.#ledger.free(uid);
      ignore("NotFound")(error);
    }
    return { kind: "done", actions: 1 };
  }

  async #refuse(pod: Pod, message: string, signal: AbortSignal): Promise<Outcome> {
    const old = findCondition(pod.status?.conditions, "PodScheduled");
    if (old?.status === "False" && old.message === message) return done;
    const nowText = formatTimestamp(this.#context.clock.nowMs());
    const condition: PodCondition = {
      type: "PodScheduled",
      status: "False",
      reason: "Unschedulable",
      message,
      lastTransitionTime: old?.status === "False" ? (old.lastTransitionTime ?? nowText) : nowText,
    };
    this.#events.record({
      regarding: pod,
      type: "Warning",
      reason: "FailedScheduling",
      action: "Scheduling",
      note: message,
    });
    const { namespace = "", name, uid } = pod.metadata;
    const body = { metadata: { uid }, status: { conditions: [condition] } };
    const patch = { type: "strategic", body } as const;
    await this.#context.client
      .patch(pods, { namespace, name }, patch, { subresource: "status", signal })
      .catch(ignore("NotFound"));
    return { kind: "done", actions: 1 };
  }
}

function isFinished({ status }: Pod): boolean {
  return status?.phase === "Succeeded" || status?.phase === "Failed";
}
