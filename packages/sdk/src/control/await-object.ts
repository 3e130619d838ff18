import { isReasonOf } from "@agent-sandbox/api/api-error";
import type { KubeObject } from "@agent-sandbox/api/meta";
import type { Resource } from "@agent-sandbox/api/resource";
import type { Client } from "@agent-sandbox/kube/client";
import { asSandboxError } from "../errors/api-failure.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import { pauseFor } from "../timing/pause.ts";
import type { Verdict } from "./verdict.ts";

/** What to wait for. */
export interface AwaitOptions<T extends KubeObject> {
  readonly client: Client;
  readonly resource: Resource<T>;
  readonly namespace: string;
  readonly name: string;
  /** Events after this version; absent: the present state first. */
  readonly resourceVersion?: string | undefined;
  /** Says of every state whether the wait is over. */
  readonly judge: (object: T) => Verdict;
  /** What a deletion means; default: an error `not-found`. */
  readonly onDeleted?: (object: T) => Verdict;
  readonly onWaiting?: (why: string) => void;
  readonly signal: AbortSignal;
}

/** An API server that is started again answers after some two seconds; it is asked this often meanwhile. */
const unavailablePauseMs = 250;

/**
 * Watches one object until `judge` has decided; rejects with its error, or with the signal's reason. An API server that was there is waited for when
 * it goes away.
 */
export async function awaitObject<T extends KubeObject>(options: AwaitOptions<T>): Promise<T> {
  const { client, resource, namespace, name, judge, onWaiting, signal } = options;
  let { resourceVersion } = options;
  let wasThere = resourceVersion !== undefined;
  for (;;) {
    // A watch may end without an error when its signal aborts.
    signal.throwIfAborted();
    // Ends the request of a watch that is left early, also while it waits for its next event.
    using watch = new WatchEnd(signal);
    try {
      const events = client.watch(resource, {
        namespace,
        fieldSelector: `metadata.name=${name}`,
        allowWatchBookmarks: true,
        ...(resourceVersion !== undefined && { resourceVersion }),
        signal: watch.signal,
      });
      for await (const { type, object } of events) {
        resourceVersion = object.metadata.resourceVersion ?? resourceVersion;
        wasThere = true;
        if (type === "BOOKMARK" || type === "ERROR" || object.metadata.name !== name) continue;
        const verdict = type === "DELETED" ? deleted(options, object) : judge(object);
        if (verdict.kind === "done") return object;
        if (verdict.kind === "failed") throw verdict.error;
        onWaiting?.(verdict.why);
      }
    } catch (error) {
      const isAway = isReasonOf(error, "ServiceUnavailable") && wasThere;
      if (!isAway && !isReasonOf(error, "Expired") && !isReasonOf(error, "Gone")) {
        throw asSandboxError(`wait for ${resource.kind} ${namespace}/${name}`, error);
      }
      // Too old, or cut: begin again with the present state.
      resourceVersion = undefined;
      if (isAway) await pauseFor(unavailablePauseMs, signal);
    }
  }
}

function deleted<T extends KubeObject>({ onDeleted, resource, namespace, name }: AwaitOptions<T>, object: T): Verdict {
  if (onDeleted !== undefined) return onDeleted(object);
  const message = `${resource.kind.toLowerCase()} ${namespace}/${name} was deleted meanwhile`;
  return { kind: "failed", error: new SandboxError("not-found", message) };
}

/** A signal of its own per watch, which follows the caller's and ends with the block that made it. */
class WatchEnd implements Disposable {
  readonly #controller = new AbortController();
  readonly signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.signal = AbortSignal.any([signal, this.#controller.signal]);
  }

  [Symbol.dispose](): void {
    this.#controller.abort(new Error("the watch is over"));
  }
}
