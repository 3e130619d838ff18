import type { ObjectMeta } from "@agent-sandbox/api";
import { coreGroup } from "@agent-sandbox/api";

/** The Sandbox as an owner: cached objects may lack apiVersion and kind, references must not. */
export function sandboxOwner(sandbox: { metadata: ObjectMeta }): {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
} {
  return { apiVersion: `${coreGroup}/v1beta1`, kind: "Sandbox", metadata: sandbox.metadata };
}
