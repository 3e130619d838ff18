import { sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";

/** Conditions of a sandbox that was ended by one of its limits. */
const endings: ReadonlySet<string> = new Set(["OOMKilled", "PidLimitReached", "Evicted"]);

/** A node tells of an end within a second, and the controller after it; times on the wire are whole seconds of another clock. */
const looksMax = 5;
const pauseMs = 300;
const clockSlackMs = 5_000;

/** Which sandbox, and since when. */
export interface LimitQuestion {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly sinceMs: number;
}

/** The limit that ended a sandbox since a moment, in words; undefined where none did, or nobody can say. */
export async function limitReached(engine: Engine, question: LimitQuestion): Promise<string | undefined> {
  const { namespace, name, uid, sinceMs } = question;
  for (let look = 0; look < looksMax; look += 1) {
    if (look > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    // An explanation is looked for because something failed already: a second failure explains nothing.
    const sandbox = await engine.client.get(sandboxes, { namespace, name }).catch(() => undefined);
    if (sandbox?.metadata.uid !== uid) return undefined;
    const found = sandbox.status?.conditions?.find(
      ({ type, status, lastTransitionTime }) =>
        endings.has(type) && status === "True" && Date.parse(lastTransitionTime) + clockSlackMs >= sinceMs,
    );
    if (found !== undefined) return `${found.message} (${found.type})`;
  }
  return undefined;
}
