import { type BackoffOptions, backoffMs, type Clock, delay } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import type { Host } from "../host/host.ts";

/** How long one question to the host lasts; a lost connection to it costs at most a new question. */
const waitMs = 60_000;

/** Between questions to a host that does not answer: the helper is restarted within a second, and each try is one connect to a Unix socket. */
const lostBackoff: BackoffOptions = { firstMs: 5, maxMs: 500 };

/** What following takes. */
export interface HeldFollower {
  readonly host: Pick<Host, "waitHeld">;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called with every address that connections are held for, whenever another one has arrived. */
  readonly onHeld: (address: string) => void;
  /** Sends the host the whole rule set: a helper that came back knows no sleeping addresses. */
  readonly renewRules: () => Promise<void>;
  readonly random?: () => number;
  readonly signal: AbortSignal;
}

/** Follows the connections that the host holds until the signal aborts. The host answers when one arrives, so that nothing is asked twice for nothing. */
export async function followHeldConnections(follower: HeldFollower): Promise<void> {
  const { host, clock, logger, onHeld, renewRules, random = Math.random, signal } = follower;
  let seen = 0;
  let failures = 0;
  while (!signal.aborted) {
    try {
      if (failures > 0) await renewRules();
      const { connections, count } = await host.waitHeld({ waitMs, after: seen }, signal);
      failures = 0;
      seen = count;
      for (const address of new Set(connections.map((connection) => connection.address))) onHeld(address);
    } catch (error) {
      if (signal.aborted) return;
      // A helper that came back counts from zero: its count may be what the old one's was.
      seen = 0;
      logger.warn({ err: error }, "the host does not say what it holds; it is asked again");
      await delay(clock, backoffMs(failures, lostBackoff, random), signal).catch(() => undefined);
      failures += 1;
    }
  }
}
