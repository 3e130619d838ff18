import { isReasonOf } from "@agent-sandbox/api/api-error";
import { annotationKeys } from "@agent-sandbox/api/labels";
import { sandboxes } from "@agent-sandbox/api/resource";
import {
  formatServices,
  isServiceName,
  type SandboxService,
  servicesMax,
  servicesOf,
} from "@agent-sandbox/api/services";
import type { Engine } from "../engine/engine.ts";
import { apiCall } from "../errors/api-failure.ts";
import { replaced } from "../errors/replaced.ts";
import { SandboxError } from "../errors/sandbox-error.ts";

/** Whose services change. */
export interface ServicesTarget {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly signal?: AbortSignal | undefined;
}

/** Others may change the object between a look and a write: as often as this is looked again. */
const attemptsMax = 8;

/** Throws `invalid-argument` for what is no name of a service. */
export function assertServiceName(name: string): void {
  if (isServiceName(name)) return;
  const rule = "1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends";
  throw new SandboxError("invalid-argument", `'${name}' is no name of a service: ${rule}`);
}

/** Writes a service into the Sandbox, where it outlives the Pod; one of the same name is replaced. */
export function declareService(engine: Engine, target: ServicesTarget, service: SandboxService): Promise<void> {
  return change(engine, target, (services) => [...services.filter(({ name }) => name !== service.name), service]);
}

/** Takes a service out of the Sandbox. */
export function withdrawService(engine: Engine, target: ServicesTarget, service: string): Promise<void> {
  return change(engine, target, (services) => services.filter(({ name }) => name !== service));
}

async function change(
  { client }: Engine,
  { namespace, name, uid, signal }: ServicesTarget,
  next: (services: readonly SandboxService[]) => readonly SandboxService[],
): Promise<void> {
  const options = signal === undefined ? {} : { signal };
  const key = { namespace, name };
  for (let attempt = 1; ; attempt += 1) {
    const { metadata } = await apiCall("find sandbox", () => client.get(sandboxes, key, options));
    if (metadata.uid !== uid) throw replaced(namespace, name);
    const text = formatServices(next(servicesOf(metadata)));
    if (text === undefined) {
      const message = `sandbox ${namespace}/${name} can have ${servicesMax} services of 8 KiB in all; remove one first`;
      throw new SandboxError("invalid-argument", message);
    }
    if ((metadata.annotations?.[annotationKeys.services] ?? null) === text) return;
    const { resourceVersion } = metadata;
    const body = { metadata: { uid, resourceVersion, annotations: { [annotationKeys.services]: text } } };
    try {
      await apiCall("change the services", () => client.patch(sandboxes, key, { type: "merge", body }, options));
      return;
    } catch (error) {
      const { cause } = error as Error;
      if (!isReasonOf(cause, "Conflict") || attempt === attemptsMax) throw error;
    }
  }
}
