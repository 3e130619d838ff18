import type { KubeObject } from "@agent-sandbox/api";
import type { Admission, AdmissionAttributes } from "../admission/admission.ts";
import type { RequestScope } from "../scope/scope.ts";

/** What is about to happen to one object. */
export interface AdmissionStep {
  readonly verb: AdmissionAttributes["verb"];
  readonly object: KubeObject | undefined;
  readonly oldObject: KubeObject | undefined;
}

/** The rules that care about one write, in order. */
export interface AdmissionRun {
  mutate(): Promise<boolean>;
  validate(): Promise<void>;
}

/** Selects the interested rules once; `mutate` says whether any of them had a say. */
export function admit(scope: RequestScope, step: AdmissionStep): AdmissionRun {
  const attributes = attributesOf(scope, step);
  const interested = scope.server.admission.filter((rule) => rule.handles(attributes));
  return {
    async mutate() {
      const mutators = interested.filter((rule) => rule.mutate !== undefined);
      for (const rule of mutators) await rule.mutate?.(attributes);
      return mutators.length > 0;
    },
    async validate() {
      for (const rule of interested) await rule.validate?.(attributes);
    },
  };
}

function attributesOf(scope: RequestScope, { verb, object, oldObject }: AdmissionStep): AdmissionAttributes {
  return {
    verb,
    group: scope.definition.group,
    version: scope.version.name,
    resource: scope.definition.resource,
    subresource: scope.subresource,
    namespace: scope.namespace,
    name: object?.metadata.name ?? scope.name,
    object,
    oldObject,
    user: scope.user,
    dryRun: scope.dryRun,
    warn: (message) => void scope.warnings.push(message),
  };
}

/** The type of a rule set, for callers that build one. */
export type { Admission };
