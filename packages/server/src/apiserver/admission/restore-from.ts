import {
  coreGroup,
  extensionsGroup,
  forbidden,
  type KubeObject,
  type Sandbox,
  sandboxSnapshots,
} from "@agent-sandbox/api";
import type { Authorizer } from "../auth/authorizer.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** The kinds that can name a snapshot to start from. */
const resources: ReadonlySet<string> = new Set([`${coreGroup}/sandboxes`, `${extensionsGroup}/sandboxtemplates`]);

/**
 * Who starts a Sandbox from a snapshot gets all that was in its memory, so that he must be allowed to `get` that snapshot. A template's author answers for
 * those who claim from it. `deploy/kubernetes/restore-from.yaml` says the same to clusters.
 */
export class RestoreFromPermission implements Admission {
  readonly name = "RestoreFrom";
  readonly #authorizer: Authorizer;

  constructor(authorizer: Authorizer) {
    this.#authorizer = authorizer;
  }

  handles({ verb, group, resource, subresource, object, oldObject }: AdmissionAttributes): boolean {
    if ((verb !== "create" && verb !== "update") || subresource !== "") return false;
    if (!resources.has(`${group}/${resource}`)) return false;
    const named = snapshotNamedBy(object);
    return named !== undefined && named !== snapshotNamedBy(oldObject);
  }

  validate({ user, group, resource, namespace, name, object }: AdmissionAttributes): void {
    const snapshot = snapshotNamedBy(object) ?? "";
    const { group: snapshotGroup, version, resource: snapshots } = sandboxSnapshots;
    const target = { group: snapshotGroup, version, resource: snapshots, subresource: "", namespace, name: snapshot };
    const { verdict } = this.#authorizer.authorize({ kind: "resource", verb: "get", ...target }, user);
    if (verdict === "allow") return;
    const why = `spec.restoreFrom names SandboxSnapshot "${snapshot}", which needs the right to "get" ${snapshots} of ${snapshotGroup}`;
    throw forbidden({ group, resource, name }, why);
  }
}

/** The same field in every version of both kinds. */
function snapshotNamedBy(object: KubeObject | undefined): string | undefined {
  return (object as Partial<Pick<Sandbox, "spec">> | undefined)?.spec?.restoreFrom?.snapshotName;
}
