import { ignore, isReasonOf } from "@agent-sandbox/api/api-error";
import { sandboxes } from "@agent-sandbox/api/resource";
import type { Sandbox } from "@agent-sandbox/api/sandbox";
import { apiCall } from "../api-failure.ts";
import type { Engine } from "../engine/engine.ts";
import { awaitObject } from "./await-object.ts";
import { awaitReady } from "./await-ready.ts";
import type { CreateOptions } from "./create-options.ts";
import { createWhole } from "./create-whole.ts";
import { randomName } from "./random-name.ts";
import { sandboxObject } from "./sandbox-object.ts";

const writeOptions = { fieldManager: "agent-sandbox-sdk", fieldValidation: "Strict" } as const;

/** Creates a Sandbox and waits for it. One with a made-up name that does not start is deleted again: nobody could find it. */
export async function createSandbox(engine: Engine, options: CreateOptions): Promise<Sandbox> {
  const { namespace = engine.namespace, name = randomName("box"), signal } = options;
  const object = sandboxObject(options, { name, namespace, nowMs: Date.now(), isOwnEngine: await engine.isOwn() });
  const known = await apiCall(`create sandbox ${namespace}/${name}`, () =>
    createWhole(engine.client, sandboxes, object, signal),
  );
  if (options.readyTimeoutMs === 0) return known;
  try {
    return await awaitReady({ ...options, engine, namespace, name, known });
  } catch (error) {
    if (options.name === undefined) {
      await engine.client.delete(sandboxes, { namespace, name }).catch(ignore("NotFound", "ServiceUnavailable"));
    }
    throw error;
  }
}

/** Gets or creates a Sandbox, wakes it where its owner put it to sleep, and waits for it. */
export async function openSandbox(
  engine: Engine,
  name: string,
  options: Omit<CreateOptions, "name">,
): Promise<Sandbox> {
  const { namespace = engine.namespace, signal } = options;
  const key = { namespace, name };
  const call = signal === undefined ? {} : { signal };
  const found = await engine.client.get(sandboxes, key, call).catch(ignore("NotFound"));
  if (found?.metadata.deletionTimestamp !== undefined) await awaitGone(engine, found, signal);
  if (found === undefined || found.metadata.deletionTimestamp !== undefined) {
    try {
      return await createSandbox(engine, { ...options, name });
    } catch (error) {
      // Somebody else was faster, which is as good.
      if (!(error instanceof Error) || !isReasonOf(error.cause, "AlreadyExists")) throw error;
    }
  }
  return wake(engine, key, options);
}

async function wake(
  engine: Engine,
  key: { namespace: string; name: string },
  options: CreateOptions,
): Promise<Sandbox> {
  const { signal } = options;
  const call = signal === undefined ? {} : { signal };
  const what = `open sandbox ${key.namespace}/${key.name}`;
  const found = await apiCall(what, () => engine.client.get(sandboxes, key, call));
  const patch = { type: "merge", body: { spec: { operatingMode: "Running" } } } as const;
  const known =
    found.spec.operatingMode === "Suspended"
      ? await apiCall(what, () => engine.client.patch(sandboxes, key, patch, { ...writeOptions, ...call }))
      : found;
  if (options.readyTimeoutMs === 0) return known;
  return awaitReady({ ...options, ...key, engine, known });
}

async function awaitGone({ client }: Engine, object: Sandbox, signal = new AbortController().signal): Promise<void> {
  const { namespace = "", name, resourceVersion, uid } = object.metadata;
  await awaitObject({
    client,
    resource: sandboxes,
    namespace,
    name,
    resourceVersion,
    judge: (now) => (now.metadata.uid === uid ? { kind: "waiting", why: "being deleted" } : { kind: "done" }),
    onDeleted: () => ({ kind: "done" }),
    signal,
  });
}
