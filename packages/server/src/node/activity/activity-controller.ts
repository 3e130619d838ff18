import {
  annotationKeys,
  formatTimestampMs,
  ignore,
  isBeingSuspended,
  keyOf,
  type Pod,
  podOwnerOf,
  type Sandbox,
  sandboxes,
  sandboxPhase,
  sleepWishOf,
  tryParseTimestamp,
} from "@agent-sandbox/api";
import {
  type Client,
  type Clock,
  type Controller,
  type ControllerTelemetry,
  defineController,
  done,
  type Informer,
  type Outcome,
} from "@agent-sandbox/kube";
import type { OpenStreams } from "./open-streams.ts";
import { activityToReport, checkTimeOf, type SeenUse } from "./plan-checks.ts";

/** What the controller looks at. */
export interface ActivityOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly telemetry?: ControllerTelemetry;
  /** With an index `uid`. */
  readonly pods: Pick<Informer<Pod>, "get" | "byIndex" | "addHandler">;
  readonly sandboxes: Pick<Informer<Sandbox>, "get" | "addHandler">;
  readonly streams: OpenStreams;
  /** What the daemon at an address says; undefined where none answers. */
  readonly ask: (address: string) => Promise<SeenUse | undefined>;
  /** Whether a program on this machine, other than the engine, holds a connection to an address. */
  readonly isDialled: (address: string) => Promise<boolean>;
}

/** Looks under way at once: a sandbox that answers slowly must not delay the look at another. */
const workers = 64;

interface Look {
  readonly sandboxUid: string;
  readonly atMs: number;
}

/**
 * Keeps sandboxes awake that are used by ways the router does not see: commands and tunnels through the API, connections to their addresses, and processes
 * that run on inside after their caller has left. Keys are Pods; a pass comes when a look is due, so that only sandboxes that would fall asleep soon are looked at.
 */
export function activityController(options: ActivityOptions): Controller {
  const { clock, telemetry, pods, sandboxes: cache, streams } = options;
  /** The last look at each Pod's sandbox. Bound: the Pods of this node. */
  const looks = new Map<string, Look>();
  return defineController({
    name: "node-activity",
    clock,
    workers,
    ...(telemetry !== undefined && { telemetry }),
    observe: (queue) => {
      const add = (pod: Pod): void => queue.add(keyOf(pod));
      pods.addHandler({ onAdd: add, onUpdate: (_old, pod) => add(pod), onDelete: add });
      const addNamed = ({ status }: Sandbox): void => pods.byIndex("uid", status?.podUID ?? "").forEach(add);
      cache.addHandler({ onAdd: addNamed, onUpdate: (_old, sandbox) => addNamed(sandbox) });
    },
    reconcile: async (key, signal) => {
      const pod = pods.get(key);
      if (pod === undefined) {
        looks.delete(key);
        streams.forget(key);
        return done;
      }
      return (await settleFrozen(options, pod, signal)) ?? lookWhenDue(options, looks, pod, signal);
    },
  });
}

/** Longer than a report takes to reach the controller and to come back. */
const reportAgainAfterMs = 2_000;

/**
 * What is open to a sandbox that has frozen gets no answer before it goes on: it counts as traffic that has come since, or, where no traffic wakes the
 * sandbox, is ended with the reason. Undefined where nothing has frozen.
 */
async function settleFrozen(options: ActivityOptions, pod: Pod, signal: AbortSignal): Promise<Outcome | undefined> {
  const { clock, streams } = options;
  const key = keyOf(pod);
  const sandbox = streams.of(key).isOpen ? ownerOf(options, pod) : undefined;
  if (sandbox === undefined || sleepWishOf(sandbox, pod) === undefined) return undefined;
  const { phase, wakesOnTraffic } = sandboxPhase(sandbox);
  if (phase !== "frozen") return undefined;
  if (!wakesOnTraffic) {
    const { namespace, name } = sandbox.metadata;
    streams.cut(
      key,
      `sandbox ${namespace}/${name} was suspended by its owner; resume it with agent-sandbox resume ${name}`,
    );
    return done;
  }
  const nowMs = clock.nowMs();
  const reportedMs = tryParseTimestamp(sandbox.metadata.annotations?.[annotationKeys.lastActivityAt] ?? "") ?? 0;
  const isReported = reportedMs >= Number(sandbox.status?.sleep?.id) && nowMs - reportedMs < reportAgainAfterMs;
  if (!isReported) await report(options, sandbox, nowMs, signal);
  return { kind: "requeue-after", afterMs: reportAgainAfterMs };
}

async function lookWhenDue(
  options: ActivityOptions,
  looks: Map<string, Look>,
  pod: Pod,
  signal: AbortSignal,
): Promise<Outcome> {
  const { clock } = options;
  const key = keyOf(pod);
  const sandbox = sleeperOf(options, pod);
  if (sandbox === undefined) return done;
  const uid = sandbox.metadata.uid ?? "";
  const last = looks.get(key);
  const due = checkTimeOf(sandbox, last?.sandboxUid === uid ? last.atMs : undefined);
  const nowMs = clock.nowMs();
  // One that is past its time is the controller's: it falls asleep unless it is woken, which changes it and brings it back here.
  if (due === undefined || nowMs >= due.asleepAtMs) return done;
  if (nowMs < due.checkAtMs) return { kind: "requeue-after", afterMs: due.checkAtMs - nowMs };
  looks.set(key, { sandboxUid: uid, atMs: nowMs });
  await reportUse(options, pod, sandbox, signal);
  // What was reported comes back as a change of the Sandbox and moves the next look; until then the old time holds.
  const next = checkTimeOf(sandbox, nowMs);
  return { kind: "requeue-after", afterMs: Math.max(1, (next?.checkAtMs ?? nowMs) - clock.nowMs()) };
}

/** The Sandbox of a Pod that is not going. */
function ownerOf({ sandboxes: cache }: ActivityOptions, pod: Pod): Sandbox | undefined {
  if (pod.metadata.deletionTimestamp !== undefined) return undefined;
  const owner = podOwnerOf(pod, (key) => cache.get(key));
  return owner.kind === "proven" ? owner.sandbox : undefined;
}

/** The Sandbox of a Pod, if it falls asleep by itself and is not being put to sleep already. */
function sleeperOf(options: ActivityOptions, pod: Pod): Sandbox | undefined {
  const sandbox = ownerOf(options, pod);
  // One that stands still, or is about to, has no daemon that could answer.
  if (sandbox === undefined || sleepWishOf(sandbox, pod) !== undefined) return undefined;
  return sandbox.spec.autoSuspension !== undefined && !isBeingSuspended(sandbox) ? sandbox : undefined;
}

async function reportUse(options: ActivityOptions, pod: Pod, sandbox: Sandbox, signal: AbortSignal): Promise<void> {
  const { clock, streams, ask, isDialled } = options;
  const { isOpen, endedMs } = streams.of(keyOf(pod));
  const address = pod.status?.podIP;
  const isHeld = isOpen || (address !== undefined && (await isDialled(address)));
  const inside = isHeld || address === undefined ? undefined : await unlessAborted(ask(address), signal);
  const seen = {
    isInUse: isHeld || inside?.isInUse === true,
    lastUseMs: Math.max(endedMs, inside?.lastUseMs ?? 0),
  };
  const atMs = activityToReport(sandbox, seen, clock.nowMs());
  if (atMs !== undefined) await report(options, sandbox, atMs, signal);
}

async function report({ client }: ActivityOptions, sandbox: Sandbox, atMs: number, signal: AbortSignal): Promise<void> {
  const { namespace = "", name, uid } = sandbox.metadata;
  const body = { metadata: { uid, annotations: { [annotationKeys.lastActivityAt]: formatTimestampMs(atMs) } } };
  await client
    .patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal })
    // Deleted, or another sandbox of the same name since.
    .catch(ignore("NotFound", "Conflict"));
}

/** The answer, or a rejection with the signal's reason: a daemon that is silent must not hold the end of the agent up. */
function unlessAborted<R>(answer: Promise<R>, signal: AbortSignal): Promise<R> {
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  return Promise.race([answer, promise]).finally(() => signal.removeEventListener("abort", onAbort));
}
