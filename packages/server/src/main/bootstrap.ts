import { readFileSync } from "node:fs";
import { isReasonOf, type JsonObject } from "@agent-sandbox/api";
import type { Client } from "@agent-sandbox/kube";
import { type BootstrapObject, bootstrapObjects } from "../apiserver/auth/bootstrap-objects.ts";
import { specFile } from "../installation/installation.ts";

/** The CustomResourceDefinitions of our kinds. */
export function readOwnCrds(): JsonObject[] {
  return JSON.parse(readFileSync(specFile("builtin/crds.json"), "utf8")) as JsonObject[];
}

/** Makes what every engine has. Objects of the release are written anew when it changed them; a user's are left alone. */
export async function applyBootstrap(client: Client): Promise<void> {
  const objects = bootstrapObjects();
  const isNamespace = ({ resource }: BootstrapObject): boolean => resource.resource === "namespaces";
  // Writes that are under way together share one wait for the disk; what lies in a namespace needs it to be there.
  await Promise.all(objects.filter(isNamespace).map((entry) => ensure(client, entry)));
  await Promise.all(objects.filter((entry) => !isNamespace(entry)).map((entry) => ensure(client, entry)));
}

async function ensure(client: Client, { resource, object, policy }: BootstrapObject): Promise<void> {
  const { namespace, name } = object.metadata;
  const key = namespace === undefined ? { name } : { namespace, name };
  try {
    // What is there already is looked at first: refusing to make it anew costs a start as much as making it.
    if (policy === "keep") await client.get(resource, key);
    else await client.patch(resource, key, { type: "merge", body: object });
  } catch (error) {
    if (!isReasonOf(error, "NotFound")) throw error;
    await client.create(resource, object);
  }
}
