import { isReasonOf } from "@agent-sandbox/api/api-error";
import type { Engine } from "@agent-sandbox/sdk";
import { awaitObject } from "@agent-sandbox/sdk/control/await-object";
import { asSandboxError } from "@agent-sandbox/sdk/errors/api-failure";
import { usageError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
import { describeDeletionWait } from "../objects/deletion-wait.ts";
import { type Kind, kindOfObject } from "../objects/kinds.ts";
import { readManifests } from "../objects/manifests.ts";
import { noSuchObject, readTarget } from "./get.ts";

interface DeleteFlags extends EngineFlags {
  readonly filename?: string[];
  readonly all?: boolean;
  readonly selector?: string;
  readonly ignoreNotFound?: boolean;
  readonly wait?: boolean;
}

interface Target {
  readonly kind: Kind;
  readonly name: string;
  readonly namespace: string;
}

/** Deletes objects and waits until they are gone. */
export const deleteVerb: Verb = async (context, args, flags) => {
  const options = flags as DeleteFlags;
  const engine = await openEngine(options);
  const targets = await findTargets(context, engine, args, options);
  if (targets.length === 0) context.stderr.write("nothing to delete\n");
  const deleted: Target[] = [];
  for (const target of targets) if (await deleteOne(engine, target, options)) deleted.push(target);
  for (const target of deleted) {
    if (options.wait !== false) await awaitGone(context, engine, target);
    context.stdout.write(`${target.kind.resource.resource}/${target.name} deleted\n`);
  }
};

async function findTargets(
  context: Context,
  engine: Engine,
  args: readonly string[],
  options: DeleteFlags,
): Promise<Target[]> {
  const { client, namespace } = engine;
  const fromFiles = (await readManifests(context, options.filename ?? [])).flatMap(({ object }) => {
    const kind = kindOfObject(object);
    const { name, namespace: own = namespace } = object.metadata;
    return kind === undefined || name === "" ? [] : [{ kind, name, namespace: own }];
  });
  if (args.length === 0) {
    if (options.filename === undefined)
      throw usageError("nothing to delete", "Write: agent-sandbox delete NAME, or KIND NAME, or -f FILE");
    return fromFiles;
  }
  const { kind, names } = readTarget(args);
  if (names.length > 0) return [...fromFiles, ...names.map((name) => ({ kind, name, namespace }))];
  if (options.all !== true && options.selector === undefined)
    throw usageError("name what to delete, or say --all or --selector");
  const select = {
    ...(kind.resource.namespaced && { namespace }),
    ...(options.selector !== undefined && { labelSelector: options.selector }),
  };
  const { items } = await client.list(kind.resource, select);
  return [...fromFiles, ...items.map(({ metadata }) => ({ kind, name: metadata.name ?? "", namespace }))];
}

/** False where it was gone already. */
async function deleteOne(engine: Engine, { kind, name, namespace }: Target, options: DeleteFlags): Promise<boolean> {
  const { resource } = kind;
  try {
    await engine.client.delete(resource, { name, ...(resource.namespaced && { namespace }) });
    return true;
  } catch (error) {
    if (!isReasonOf(error, "NotFound")) throw asSandboxError(`delete ${resource.resource}/${name}`, error);
    if (options.ignoreNotFound === true) return false;
    throw await noSuchObject(engine, kind, name);
  }
}

async function awaitGone(context: Context, { client }: Engine, { kind, name, namespace }: Target): Promise<void> {
  const { resource } = kind;
  const key = { name, ...(resource.namespaced && { namespace }) };
  const object = await client.get(resource, key).catch((error: unknown) => {
    if (isReasonOf(error, "NotFound")) return undefined;
    throw error;
  });
  // Without a deletion under way it is another object of the same name.
  if (object?.metadata.deletionTimestamp === undefined) return;
  using _saying = new LateWord(context, () => describeDeletionWait(client, kind, object));
  await awaitObject({
    client,
    resource,
    namespace: resource.namespaced ? namespace : "",
    name,
    resourceVersion: object.metadata.resourceVersion,
    judge: () => ({ kind: "waiting", why: "being deleted" }),
    onDeleted: () => ({ kind: "done" }),
    signal: context.signal,
  });
}

/** Most objects are gone by then; one that is not waits for something that the user should know. */
const sayAfterMs = 1_000;

/** Says something on standard error if it takes long. */
class LateWord implements Disposable {
  readonly #timer: NodeJS.Timeout;
  #isOver = false;

  constructor({ stderr }: Context, word: () => Promise<string>) {
    this.#timer = setTimeout(() => {
      // It is a courtesy: an API that does not answer is noticed by the wait itself.
      word().then(
        (text) => (this.#isOver ? undefined : stderr.write(`${text}\n`)),
        () => undefined,
      );
    }, sayAfterMs);
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }
}
