import { labelKeys } from "@agent-sandbox/api/labels";
import type { KubeObject } from "@agent-sandbox/api/meta";
import { nameHash } from "@agent-sandbox/api/name-hash";
import { sandboxes, sandboxWarmPools } from "@agent-sandbox/api/resource";
import type { Client } from "@agent-sandbox/kube/client";
import type { Kind } from "./kinds.ts";

/** Names that one sentence lists. */
const namesMax = 5;

/** One sentence about what an object that is being deleted waits for, and what to do; asks the API where that tells. */
export async function describeDeletionWait(client: Client, { resource }: Kind, object: KubeObject): Promise<string> {
  const { name, namespace = "" } = object.metadata;
  const what = `${resource.resource}/${name}`;
  if (resource.kind === "SandboxTemplate") {
    const users = await templateUsers(client, namespace, name);
    if (users.length > 0)
      return `${what} goes when nothing made from it is left: ${listed(users)}; delete those, or leave it to that with --no-wait`;
  }
  const finalizers = object.metadata.finalizers ?? [];
  return finalizers.length === 0
    ? `${what} is being deleted`
    : `${what} waits until ${listed(finalizers)} ${finalizers.length === 1 ? "is" : "are"} taken off its finalizers by who put them there; --no-wait does not wait for that`;
}

/** Pools that make sandboxes from a template, and sandboxes that were: as long as there is one, its network policy stays. */
async function templateUsers(client: Client, namespace: string, template: string): Promise<string[]> {
  const labelSelector = `${labelKeys.templateRefHash}=${nameHash(template)}`;
  const [pools, boxes] = [
    await client.list(sandboxWarmPools, { namespace }),
    await client.list(sandboxes, { namespace, labelSelector }),
  ];
  return [
    ...pools.items
      .filter(({ spec }) => spec.sandboxTemplateRef.name === template)
      .map(({ metadata }) => `pool '${metadata.name}'`),
    ...boxes.items.map(({ metadata }) => `sandbox '${metadata.name}'`),
  ];
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, namesMax).join(", ");
  return names.length > namesMax ? `${shown} and ${names.length - namesMax} more` : shown;
}
