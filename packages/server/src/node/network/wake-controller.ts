import { ignore, type Pod, type Sandbox, sandboxes } from "@agent-sandbox/api";
import {
  type BackoffOptions,
  type Client,
  type Clock,
  type Controller,
  type ControllerTelemetry,
  defineController,
  done,
  type Informer,
  type Outcome,
} from "@agent-sandbox/kube";
import type { Host } from "../host/host.ts";
import { activityPatch } from "./sandbox-addresses.ts";

/** A held connection is reset when its sandbox has not come up in this time. */
const holdMaxMs = 60_000;

/** Sandboxes that are woken at once: each pass is one write, or one change of rules and one verb. */
const workers = 8;

/** Callers wait: a report or a verb that failed is tried again within a second, until the connection's time is over. */
const backoff: BackoffOptions = { firstMs: 5, maxMs: 1_000 };

/** What waking takes. */
export interface WakeOptions {
  readonly client: Client;
  readonly host: Pick<Host, "handOver" | "dropHeld">;
  readonly clock: Clock;
  readonly telemetry?: ControllerTelemetry;
  readonly random?: () => number;
  /** With an index `address`. */
  readonly pods: Pick<Informer<Pod>, "byIndex" | "addHandler">;
  /** With an index `address`. */
  readonly sandboxes: Pick<Informer<Sandbox>, "byIndex">;
  /** Whether a pod takes connections. Its Ready condition says so for a while after it has begun to fall asleep. */
  readonly serves: (pod: Pod) => boolean;
  /** Resolves when nothing is diverted any more from sandboxes that are awake. */
  readonly applyRules: () => Promise<void>;
}

/** The controller, and the way in for connections. */
export interface WakeController extends Controller {
  /** Says that connections are held for an address; again for each that arrives. */
  readonly held: (address: string) => void;
}

interface Waiting {
  readonly sinceMs: number;
  isReported: boolean;
}

/**
 * Wakes sandboxes that connections are held for, and hands these over once the sandbox is up. Keys are addresses. A pass follows a connection, a change of
 * the address's Pod or the end of the time that connections are held, and nothing else.
 */
export function wakeController(options: WakeOptions): WakeController {
  const { clock, telemetry, random, pods } = options;
  /** Since when connections wait, by the address they are for. Bound: the addresses that the host holds connections for. */
  const waiting = new Map<string, Waiting>();
  const controller = defineController({
    name: "node-wake",
    clock,
    workers,
    backoff,
    ...(telemetry !== undefined && { telemetry }),
    ...(random !== undefined && { random }),
    observe: (queue) => {
      const onPod = ({ status }: Pod): void => {
        for (const { ip = "" } of status?.podIPs ?? []) if (waiting.has(ip)) queue.add(ip);
      };
      pods.addHandler({ onAdd: onPod, onUpdate: (_old, pod) => onPod(pod) });
    },
    reconcile: (address, signal) => settle(options, waiting, address, signal),
  });
  const held = (address: string): void => {
    if (!waiting.has(address)) waiting.set(address, { sinceMs: clock.nowMs(), isReported: false });
    controller.queue.add(address);
  };
  return { ...controller, held };
}

async function settle(
  options: WakeOptions,
  waiting: Map<string, Waiting>,
  address: string,
  signal: AbortSignal,
): Promise<Outcome> {
  const { host, clock, pods, serves, applyRules } = options;
  const entry = waiting.get(address);
  if (entry === undefined) return done;
  const isUp = pods.byIndex("address", address).some(serves);
  const leftMs = entry.sinceMs + holdMaxMs - clock.nowMs();
  if (!isUp && leftMs > 0) {
    if (!entry.isReported) await reportActivity(options, address, signal);
    entry.isReported = true;
    return { kind: "requeue-after", afterMs: leftMs };
  }
  // Before the verb: a connection that arrives while it runs starts anew.
  waiting.delete(address);
  try {
    // The host connects to the sandbox as every program on this machine does, so that its own connection must not be diverted.
    if (isUp) await applyRules();
    await (isUp ? host.handOver({ address }, signal) : host.dropHeld({ address }, signal));
  } catch (error) {
    waiting.set(address, entry);
    throw error;
  }
  return { kind: "done", actions: 1 };
}

/** A sandbox that is on its way up already may be told of activity once more; one that has gone needs none. */
async function reportActivity(
  { client, clock, sandboxes: cache }: WakeOptions,
  address: string,
  signal: AbortSignal,
): Promise<void> {
  const [sandbox] = cache.byIndex("address", address);
  if (sandbox === undefined) return;
  const { namespace = "", name } = sandbox.metadata;
  const body = activityPatch(clock.nowMs());
  await client.patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal }).catch(ignore("NotFound"));
}
