import type { Clock } from "@agent-sandbox/kube";
import type { FrozenCgroup } from "../host/cgroup.ts";
import type { Host } from "../host/host.ts";
import { HostError } from "../host/host-error.ts";
import type { SavedState } from "../host/saved-state.ts";
import type { SleepStep } from "./plan-sleep.ts";
import type { SleepFailure, SleepState, SleepStates } from "./sleep-states.ts";

/** What putting a pod to sleep works with. */
export interface SleepParts {
  readonly host: Host;
  readonly clock: Clock;
  readonly sleep: SleepStates;
  /** Resolves when the rules in force divert connections as the states say. */
  readonly applyRules: () => Promise<void>;
  /** Throws where memory that is saved could not be used again: another pod writes to what it refers to, or this machine restores nothing. */
  readonly assertSavable: () => Promise<void>;
  /** No probe of the pod is made or counted from here on. */
  readonly pauseProbes: () => void;
  /** Probes go on with what they knew. */
  readonly resumeProbes: () => void;
}

/** The pod that a step is about. */
export interface Sleeper {
  readonly uid: string;
  readonly cgroup: string;
  /** The root container of its sandbox. */
  readonly root: string;
  /** All of its containers; the root is not known any more once the sandbox was taken away. */
  readonly containers: readonly string[];
  /** What its saved memory is called. */
  readonly saved: string;
}

/** A sleep that failed is tried again after this, doubling up to the greatest pause: what keeps a process from stopping may last, and each try stops the others for a moment. */
const retryFirstMs = 1_000;
const retryMaxMs = 60_000;

/**
 * Carries out one step. Connections that a sandbox has open when it is put to sleep stay open and go on when it wakes from a freeze; only new ones are held. A sleep that
 * the host refuses is noted as failed; every other error is thrown, and what became of the pod is asked before the next step.
 */
export async function applySleep(
  parts: SleepParts,
  sleeper: Sleeper,
  step: SleepStep,
  signal: AbortSignal,
): Promise<void> {
  switch (step.do) {
    case "freeze":
    case "save":
      return fallAsleep(parts, sleeper, step, signal);
    case "thaw":
    case "continue":
      return wakeUp(parts, sleeper, step.do, signal);
    default:
      return step satisfies never;
  }
}

/** Asks the host how far a pod is asleep, and keeps what is known besides. */
export async function lookAtSleep(
  { host, sleep }: Pick<SleepParts, "host" | "sleep">,
  { uid, cgroup, containers, saved }: Sleeper,
  signal: AbortSignal,
): Promise<void> {
  const [isFrozen, states] = await Promise.all([isFrozenNow(host, cgroup, signal), host.listSaved(signal)]);
  const { failure } = sleep.of(uid);
  const own = states.find((state) => state.id === saved && isMemoryOf(state, containers));
  sleep.set(uid, { isFrozen, ...(own !== undefined && { saved: own }), ...(failure !== undefined && { failure }) });
}

/** Whether a saved state is the memory of this very sandbox, and not that of an earlier one that it was restored from. */
export function isMemoryOf(state: SavedState, containers: readonly string[]): boolean {
  return state.containers.some(({ id }) => containers.includes(id));
}

async function isFrozenNow(host: Host, id: string, signal: AbortSignal): Promise<boolean> {
  try {
    return (await host.cgroupStats({ id }, signal)).frozen;
  } catch (error) {
    if (error instanceof HostError && error.code === "not-found") return false;
    throw error;
  }
}

async function fallAsleep(
  parts: SleepParts,
  sleeper: Sleeper,
  step: Extract<SleepStep, { readonly wish: string }>,
  signal: AbortSignal,
): Promise<void> {
  const { sleep, applyRules, pauseProbes, resumeProbes } = parts;
  const { uid } = sleeper;
  const before = sleep.of(uid);
  pauseProbes();
  sleep.set(uid, { ...before, isFalling: true });
  try {
    // Before any process stops: a connection from here on is held for the next wake, where traffic wakes the sandbox.
    await applyRules();
    sleep.set(
      uid,
      await (step.do === "freeze" ? freeze(parts, sleeper, signal) : save(parts, sleeper, before, signal)),
    );
  } catch (error) {
    const { isFalling: _isFalling, ...rest } = before;
    sleep.set(uid, isRefusal(error) ? { ...rest, failure: failureOf(parts, uid, step.wish, error) } : rest);
    sleep.doubt(uid);
    resumeProbes();
    if (!isRefusal(error)) throw error;
  }
}

async function freeze({ host }: SleepParts, { cgroup }: Sleeper, signal: AbortSignal): Promise<SleepState> {
  return { isFrozen: true, frozen: memoryLine(await host.freezeCgroup({ id: cgroup }, signal)) };
}

/** A frozen sentry cannot save itself; nothing of it was saved yet, so that its processes may run for the moment between. */
async function save(
  { host, assertSavable }: SleepParts,
  { root, saved, cgroup }: Sleeper,
  { isFrozen }: SleepState,
  signal: AbortSignal,
): Promise<SleepState> {
  await assertSavable();
  if (isFrozen) await host.thawCgroup({ id: cgroup }, signal);
  return { isFrozen: false, saved: await host.saveSandbox({ id: root, saved }, signal) };
}

/** The rules and the verb at once: a caller that is let through early waits a moment for the answer. */
async function wakeUp(
  { host, sleep, applyRules, resumeProbes }: SleepParts,
  { uid, cgroup, root, saved }: Sleeper,
  how: "thaw" | "continue",
  signal: AbortSignal,
): Promise<void> {
  const verb = how === "thaw" ? host.thawCgroup({ id: cgroup }, signal) : goOn(host, { root, saved }, signal);
  sleep.set(uid, { isFrozen: false });
  try {
    await Promise.all([verb, applyRules()]);
  } catch (error) {
    sleep.doubt(uid);
    throw error;
  }
  resumeProbes();
}

/** Of a sandbox that has ended while it was paused only its memory is left, and its Sandbox does not want that any more. */
async function goOn(host: Host, { root, saved }: Pick<Sleeper, "root" | "saved">, signal: AbortSignal): Promise<void> {
  try {
    await host.continueSandbox({ id: root, saved }, signal);
  } catch (error) {
    if (!(error instanceof HostError && (error.code === "busy" || error.code === "not-found"))) throw error;
    await host.discardSaved({ id: saved }, signal);
  }
}

/** A helper that is away has refused nothing. */
function isRefusal(error: unknown): error is HostError {
  return error instanceof HostError && error.code !== "unavailable";
}

function failureOf({ clock, sleep }: SleepParts, uid: string, wish: string, error: HostError): SleepFailure {
  const last = sleep.of(uid).failure;
  const tries = last?.wish === wish ? last.tries + 1 : 0;
  const retryAtMs = clock.nowMs() + Math.min(retryFirstMs * 2 ** tries, retryMaxMs);
  return { wish, message: error.message, retryAtMs, tries };
}

function memoryLine({ residentBeforeBytes, residentBytes, hasSwap }: FrozenCgroup): string {
  const swap = hasSwap ? "" : ", without swap on this machine";
  return `${residentBytes} of ${residentBeforeBytes} bytes stay in memory${swap}`;
}
