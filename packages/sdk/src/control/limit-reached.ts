import { sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import type { Limit } from "../errors/sandbox-error.ts";
import type { LimitReached } from "../process/event-stream.ts";

/** Conditions of a sandbox that was ended by one of its limits. */
const limits: readonly Limit[] = ["OOMKilled", "PidLimitReached", "Evicted"];

/** The node reports an end within a second, and the controller writes it into the Sandbox after that: five looks span 1.2 s. */
const looksMax = 5;
const pauseMs = 300;
/** Times on the wire are whole seconds of another machine's clock. */
const clockSlackMs = 5_000;

/** Which sandbox, and since when. */
export interface LimitQuestion {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly sinceMs: number;
}

/** The limit that ended a sandbox since a moment; undefined where none did, or the API cannot be asked. */
export async function limitReached(engine: Engine, question: LimitQuestion): Promise<LimitReached | undefined> {
  const { namespace, name, uid, sinceMs } = question;
  for (let look = 0; look < looksMax; look += 1) {
    if (look > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    // The explanation of one failure is looked for: a second failure explains nothing.
    const sandbox = await engine.client.get(sandboxes, { namespace, name }).catch(() => undefined);
    if (sandbox?.metadata.uid !== uid) return undefined;
    for (const { type, status, lastTransitionTime, message } of sandbox.status?.conditions ?? []) {
      const limit = limits.find((one) => one === type);
      const isRecent = Date.parse(lastTransitionTime) + clockSlackMs >= sinceMs;
      if (limit !== undefined && status === "True" && isRecent) return { limit, message };
    }
  }
  return undefined;
}
