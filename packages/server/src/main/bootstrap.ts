import { readFileSync } from "node:fs";
import path from "node:path";
import { ignore, isReasonOf } from "@agent-sandbox/api";
import type { Client } from "@agent-sandbox/kube";
import { type BootstrapObject, bootstrapObjects } from "../apiserver/auth/bootstrap-objects.ts";
import type { JsonObject } from "../apiserver/json/json.ts";

const crdsFile = path.resolve(import.meta.dirname, "../../../../spec/builtin/crds.json");

/** The CustomResourceDefinitions of our kinds. */
export function readOwnCrds(): JsonObject[] {
  return JSON.parse(readFileSync(crdsFile, "utf8")) as JsonObject[];
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
  try {
    await client.create(resource, object);
  } catch (error) {
    if (!isReasonOf(error, "AlreadyExists")) throw error;
    if (policy === "keep") return;
    const { namespace, name } = object.metadata;
    const key = namespace === undefined ? { name } : { namespace, name };
    // A role that binds to another role cannot be changed; it never does, so NotFound alone is worth ignoring: somebody deleted it just now.
    await client.patch(resource, key, { type: "merge", body: object }).catch(ignore("NotFound"));
  }
}
