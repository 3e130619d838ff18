import { ignore } from "@agent-sandbox/api/api-error";
import type { KubeObject } from "@agent-sandbox/api/meta";
import type { Resource } from "@agent-sandbox/api/resource";
import type { Client } from "@agent-sandbox/kube/client";
import { untilAborted } from "../timing/until-aborted.ts";

const writeOptions = { fieldManager: "agent-sandbox-sdk", fieldValidation: "Strict" } as const;

/** How long a call that was given up waits until the object it made is deleted. */
const undoLimitMs = 5_000;

/**
 * Creates an object. The request is not cut off by the caller's signal, because it would be unknown then whether the object is
 * there: a call that is given up deletes it again before it rejects.
 */
export async function createWhole<T extends KubeObject>(
  client: Client,
  resource: Resource<T>,
  object: T,
  signal: AbortSignal | undefined,
): Promise<T> {
  signal?.throwIfAborted();
  const creating = client.create(resource, object, writeOptions);
  try {
    return await untilAborted(creating, signal);
  } catch (error) {
    if (signal?.aborted === true) await undo(client, resource, creating);
    throw error;
  }
}

async function undo<T extends KubeObject>(client: Client, resource: Resource<T>, creating: Promise<T>): Promise<void> {
  const undoing = creating.then(
    async ({ metadata: { namespace = "", name, uid = "" } }) => {
      await client.delete(resource, { namespace, name }, { uid }).catch(ignore("NotFound", "ServiceUnavailable"));
    },
    // What was never made needs no undoing.
    () => undefined,
  );
  await untilAborted(undoing, AbortSignal.timeout(undoLimitMs)).catch(() => undefined);
}
