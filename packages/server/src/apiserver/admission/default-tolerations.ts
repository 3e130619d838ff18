import type { Pod, Toleration } from "@agent-sandbox/api";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** Conditions of a node that move a Pod away, and for how long a Pod stays nevertheless. */
const conditions = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const toleratedSeconds = 300;

/**
 * Lets a Pod stay on a node that is gone for five minutes, unless it says otherwise. One machine taints nothing; the
 * tolerations are there because clients compare Pods.
 */
export class DefaultTolerations implements Admission {
  readonly name = "DefaultTolerationSeconds";

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    return (verb === "create" || verb === "update") && group === "" && resource === "pods" && subresource === "";
  }

  mutate({ object }: AdmissionAttributes): Promise<void> {
    const { spec } = object as Pod;
    const given = spec?.tolerations ?? [];
    const missing = conditions.filter((key) => !given.some((one) => tolerates(one, key)));
    if (spec !== undefined && missing.length > 0) {
      const added = missing.map((key) => ({
        key,
        operator: "Exists",
        effect: "NoExecute",
        tolerationSeconds: toleratedSeconds,
      }));
      spec.tolerations = [...given, ...added];
    }
    return Promise.resolve();
  }
}

function tolerates({ key = "", effect = "" }: Toleration, wanted: string): boolean {
  return (key === wanted || key === "") && (effect === "NoExecute" || effect === "");
}
