import { ignore } from "@agent-sandbox/api/api-error";
import { blueprintOf, type SandboxBlueprint } from "@agent-sandbox/api/blueprint";
import { sandboxes, sandboxSnapshots } from "@agent-sandbox/api/resource";
import type { Engine } from "../engine/engine.ts";
import { apiCall } from "../errors/api-failure.ts";
import { SandboxError } from "../errors/sandbox-error.ts";
import type { CreateOptions } from "./create-options.ts";

/** Options that say what runs, which a snapshot's own sandbox has said already. */
const podOptions = ["env", "cpu", "memory", "disk", "volumes", "command", "workdir", "runtime", "podTemplate"] as const;

/**
 * What a sandbox from a snapshot takes over of the one that it was taken of; undefined where the caller says what runs. Throws `invalid-argument` where
 * that one is gone, or half of it is said.
 */
export async function inheritedSpec(engine: Engine, options: CreateOptions): Promise<SandboxBlueprint | undefined> {
  const { fromSnapshot, image, namespace = engine.namespace, signal } = options;
  if (fromSnapshot === undefined || image !== undefined || options.spec?.podTemplate !== undefined) return undefined;
  const said = podOptions.find((name) => options[name] !== undefined);
  if (said !== undefined) {
    const why = `'${said}' is taken from the sandbox of the snapshot; give 'image' too, to say everything anew`;
    throw new SandboxError("invalid-argument", `create: ${why}`);
  }
  const call = signal === undefined ? {} : { signal };
  const snapshot = await apiCall(`get snapshot ${namespace}/${fromSnapshot}`, () =>
    engine.client.get(sandboxSnapshots, { namespace, name: fromSnapshot }, call),
  );
  const name = snapshot.spec.sandboxName;
  const source = await apiCall(`get sandbox ${namespace}/${name}`, () =>
    engine.client.get(sandboxes, { namespace, name }, call).catch(ignore("NotFound")),
  );
  const { sandboxUID: uid } = snapshot.status ?? {};
  if (source === undefined || (uid !== undefined && source.metadata.uid !== uid)) {
    const why = `sandbox '${name}' of snapshot '${fromSnapshot}' is gone; say what it was made of with 'image' and the options beside it`;
    throw new SandboxError("invalid-argument", `create: ${why}`);
  }
  return blueprintOf(source);
}
