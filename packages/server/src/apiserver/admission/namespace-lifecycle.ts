import { ApiError, forbidden, namespaces, notFound } from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** Namespaces that the system cannot do without. */
const permanent = new Set(["default", "kube-public", "kube-system", "agent-sandbox-system"]);

/** Objects live only in namespaces that exist and are not going away. */
export class NamespaceLifecycle implements Admission {
  readonly name = "NamespaceLifecycle";
  readonly #reader: ObjectReader;

  constructor(reader: ObjectReader) {
    this.#reader = reader;
  }

  handles({ verb, group, resource, namespace }: AdmissionAttributes): boolean {
    return (group === "" && resource === "namespaces") || (verb === "create" && namespace !== "");
  }

  async validate({ verb, group, resource, namespace, name }: AdmissionAttributes): Promise<void> {
    if (group === "" && resource === "namespaces") {
      if (verb !== "delete" || !permanent.has(name)) return;
      throw forbidden({ resource: "namespaces", name }, "this namespace may not be deleted");
    }
    if (verb !== "create" || isQuestion(group)) return;
    const found = await this.#reader.get(namespaces, { name: namespace });
    if (found === undefined) throw notFound({ resource: "namespaces", name: namespace });
    if (found.metadata.deletionTimestamp === undefined && found.status?.phase !== "Terminating") return;
    throw terminating({ group, resource, name }, namespace);
  }
}

/** Reviews are answered, not stored, so that they need no namespace to be alive. */
function isQuestion(group: string): boolean {
  return group === "authorization.k8s.io" || group === "authentication.k8s.io";
}

function terminating(subject: { group: string; resource: string; name: string }, namespace: string): ApiError {
  const why = `unable to create new content in namespace ${namespace} because it is being terminated`;
  const { message, details } = forbidden(subject, why);
  const cause = {
    reason: "NamespaceTerminating",
    message: `namespace ${namespace} is being terminated`,
    field: "metadata.namespace",
  };
  return new ApiError("Forbidden", message, { details: { ...details, causes: [cause] } });
}
