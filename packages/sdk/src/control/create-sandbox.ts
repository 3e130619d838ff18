import { ignore, isReasonOf } from "@agent-sandbox/api/api-error";
import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { sandboxes } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import { apiCall } from "../errors/api-failure.ts";
import { awaitGone } from "./await-gone.ts";
import { awaitReady } from "./await-ready.ts";
import type { CallTarget, CreateOptions, WaitOptions } from "./create-options.ts";
import { createWhole } from "./create-whole.ts";
import { randomName } from "./random-name.ts";
import { sandboxObject } from "./sandbox-object.ts";
import { inheritedSpec } from "./snapshot-spec.ts";

const writeOptions = { fieldManager: "agent-sandbox-sdk", fieldValidation: "Strict" } as const;

/** Creates a Sandbox and waits for it. One that does not start is deleted again, so that a second call under the same name does not find its remains. */
export async function createSandbox(engine: Engine, options: CreateOptions): Promise<Sandbox> {
  return createObject(engine, await newObject(engine, options), options);
}

/** The same for an object that is written already. */
export async function createObject(
  engine: Engine,
  object: Sandbox,
  options: WaitOptions & Pick<CallTarget, "signal">,
): Promise<Sandbox> {
  const known = await makeSandbox(engine, object, options.signal);
  const { namespace = "", name, uid = "" } = known.metadata;
  try {
    return await readySandbox(engine, known, options);
  } catch (error) {
    const gone = ignore("NotFound", "Conflict", "ServiceUnavailable");
    await engine.client.delete(sandboxes, { namespace, name }, { uid }).catch(gone);
    throw error;
  }
}

async function newObject(engine: Engine, options: CreateOptions): Promise<Sandbox> {
  const { namespace = engine.namespace, name = randomName("box") } = options;
  const inherited = await inheritedSpec(engine, options);
  const isOwnEngine = await engine.isOwn();
  return sandboxObject(options, { name, namespace, nowMs: Date.now(), isOwnEngine, inherited });
}

async function makeSandbox(engine: Engine, object: Sandbox, signal: AbortSignal | undefined): Promise<Sandbox> {
  const { namespace = "", name } = object.metadata;
  return apiCall(`create sandbox ${namespace}/${name}`, () => createWhole(engine.client, sandboxes, object, signal));
}

async function readySandbox(
  engine: Engine,
  known: Sandbox,
  options: WaitOptions & Pick<CallTarget, "signal">,
): Promise<Sandbox> {
  if (options.readyTimeoutMs === 0) return known;
  const { namespace = "", name } = known.metadata;
  return awaitReady({ ...options, engine, namespace, name, known });
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
  if (found?.metadata.deletionTimestamp !== undefined) await awaitGone(engine, found, call);
  if (found === undefined || found.metadata.deletionTimestamp !== undefined) {
    try {
      const object = await newObject(engine, { ...options, name });
      return await readySandbox(engine, await makeSandbox(engine, object, signal), options);
    } catch (error) {
      // Another caller made it in the meantime: that sandbox is the one that is meant.
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
  return readySandbox(engine, known, options);
}
