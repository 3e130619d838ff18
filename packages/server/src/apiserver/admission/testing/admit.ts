import { asObject, type JsonObject, type KubeObject } from "@agent-sandbox/api";
import type { Admission, AdmissionAttributes } from "../admission.ts";

/** What a test says about a request; the rest is a create by a plain user in namespace `a`. */
export type Asked = Partial<AdmissionAttributes> & Pick<AdmissionAttributes, "resource">;

/** Runs rules on a request as the API server does and returns the warnings; the object is changed in place. */
export async function admit(rules: Admission | readonly Admission[], asked: Asked): Promise<string[]> {
  const warnings: string[] = [];
  const attributes: AdmissionAttributes = {
    verb: "create",
    group: "",
    version: "v1",
    subresource: "",
    namespace: "a",
    name: asked.object?.metadata.name ?? "",
    object: undefined,
    oldObject: undefined,
    user: { username: "jane", groups: ["system:authenticated"] },
    dryRun: false,
    warn: (message) => void warnings.push(message),
    ...asked,
  };
  const interested = [rules].flat().filter((rule) => rule.handles(attributes));
  for (const rule of interested) await rule.mutate?.(attributes);
  for (const rule of interested) await rule.validate?.(attributes);
  return warnings;
}

/** An object of any kind, typed as the test needs it. */
export function object<T extends KubeObject>(kind: string, rest: Record<string, unknown> = {}): T {
  return asObject<T>({ apiVersion: "v1", kind, metadata: { namespace: "a", name: "x" }, ...(rest as JsonObject) });
}
