import { containerEndedCondition } from "@agent-sandbox/api/container-end";
import type { Condition } from "@agent-sandbox/api/meta";
import { sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import type { Limit } from "../errors/sandbox-error.ts";
import type { ContainerEnd, EndQuestion } from "../process/event-stream.ts";
import { pauseFor } from "../timing/pause.ts";

/** Conditions of a sandbox that was ended by one of its limits. */
const limits: readonly Limit[] = ["OOMKilled", "PidLimitReached", "Evicted"];

/** The node reports an end within a second, and the controller writes it into the Sandbox after that: five looks span 1.2 s. */
const looksMax = 5;
const pauseMs = 300;
/** An API server that does not answer within this explains nothing. */
const lookLimitMs = 2_000;
/**
 * Times on the wire are whole seconds of another machine's clock. Where it is certain that the container ended, only which end it was is asked,
 * and clocks may differ; where it is not, an end before the process must not be taken for its own.
 */
const clockSlackMs = { gone: 5_000, lost: 1_000 } as const;

/** Which sandbox, and what is known. */
interface SandboxEndQuestion extends EndQuestion {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** The end of a sandbox's containers since a moment; undefined where there was none, or the API cannot be asked. */
export async function findContainerEnd(
  engine: Engine,
  question: SandboxEndQuestion,
): Promise<ContainerEnd | undefined> {
  const { namespace, name, uid, kind } = question;
  for (let look = 0; look < (kind === "gone" ? looksMax : 1); look += 1) {
    if (look > 0) await pauseFor(pauseMs, undefined);
    const signal = AbortSignal.timeout(lookLimitMs);
    // The explanation of one failure is looked for: a second failure explains nothing.
    const sandbox = await engine.client.get(sandboxes, { namespace, name }, { signal }).catch(() => undefined);
    if (sandbox?.metadata.uid !== uid) return undefined;
    const end = endSince(sandbox.status?.conditions ?? [], question);
    if (end !== undefined) return end;
  }
  return undefined;
}

/** A limit says more than the bare end, which is written together with it. */
function endSince(conditions: readonly Condition[], { sinceMs, kind }: EndQuestion): ContainerEnd | undefined {
  const recent = conditions.filter(
    ({ status, lastTransitionTime }) =>
      status === "True" && Date.parse(lastTransitionTime) + clockSlackMs[kind] >= sinceMs,
  );
  for (const { type, message } of recent) {
    const limit = limits.find((one) => one === type);
    if (limit !== undefined) return { limit, message };
  }
  const ended = recent.find(({ type }) => type === containerEndedCondition);
  return ended === undefined ? undefined : { message: ended.message };
}
