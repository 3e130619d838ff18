import { ignore, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { type Client, type Clock, delay } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { Host } from "../host/host.ts";
import { activityPatch, addressOf } from "./sandbox-addresses.ts";

/** How long one question to the host lasts. */
const waitMs = 60_000;

/** Pause after a failure, and between two looks at an address that is being woken. */
const pauseMs = 500;

/** A held connection is reset when its sandbox has not come up in this time. */
const holdMaxMs = 60_000;

/** The loop's parts. */
export interface WakeLoopOptions {
  readonly client: Client;
  readonly host: Host;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly sandboxes: () => readonly Sandbox[];
  /** Tells the host anew what sleeps; one that came back has forgotten it. */
  readonly renewRules: () => Promise<void>;
  /** Whether the pod at an address is Ready. */
  readonly isAwake: (address: string) => boolean;
  readonly signal: AbortSignal;
}

/** Wakes sandboxes that somebody connects to, and hands the waiting connections over once they are up. */
export async function runWakeLoop(options: WakeLoopOptions): Promise<void> {
  const { host, clock, logger, signal } = options;
  const waking = new Map<string, number>();
  let isLost = false;
  while (!signal.aborted) {
    try {
      if (isLost) await options.renewRules();
      isLost = false;
      const held = await host.waitHeld({ waitMs: waking.size > 0 ? pauseMs : waitMs }, signal);
      for (const address of new Set(held.map((connection) => connection.address))) {
        if (waking.has(address)) continue;
        waking.set(address, clock.nowMs());
        await reportActivity(options, address);
      }
      await settle(options, waking);
      // What is held is told again at once, so that a loop without a pause would spin.
      await delay(clock, pauseMs, signal);
    } catch (error) {
      if (signal.aborted) return;
      isLost = true;
      logger.warn({ err: error }, "waiting for held connections failed; it is tried again");
      await delay(clock, pauseMs, signal).catch(() => undefined);
    }
  }
}

async function reportActivity(
  { client, clock, sandboxes: list, signal }: WakeLoopOptions,
  address: string,
): Promise<void> {
  const sandbox = list().find((candidate) => addressOf(candidate) === address);
  if (sandbox === undefined) return;
  const { namespace = "", name } = sandbox.metadata;
  const body = activityPatch(clock.nowMs());
  await client.patch(sandboxes, { namespace, name }, { type: "merge", body }, { signal }).catch(ignore("NotFound"));
}

async function settle({ host, clock, isAwake, signal }: WakeLoopOptions, waking: Map<string, number>): Promise<void> {
  for (const [address, sinceMs] of waking) {
    if (isAwake(address)) await host.handOver({ address }, signal);
    else if (clock.nowMs() - sinceMs > holdMaxMs) await host.dropHeld({ address }, signal);
    else continue;
    waking.delete(address);
  }
}
