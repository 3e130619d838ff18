import { isDeepStrictEqual } from "node:util";
import {
  forbidden,
  invalid,
  type KubeObject,
  type Namespace,
  namespaces,
  type Pod,
  type PodSpec,
  sandboxTemplateAliases,
} from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";
import { podSecurityViolations, type SecurityLevel } from "./pod-security-checks.ts";

const prefix = "pod-security.kubernetes.io/";
const levels: readonly string[] = ["privileged", "baseline", "restricted"];
/** Kinds of ours that hold a Pod to be; their authors are warned early, the Pod itself is what is refused. */
const templateKinds = new Set(["sandboxes", "sandboxtemplates", sandboxTemplateAliases.resource]);

/** The Pod Security Standards, by the labels of the namespace. */
export class PodSecurity implements Admission {
  readonly name = "PodSecurity";
  readonly #reader: ObjectReader;

  constructor(reader: ObjectReader) {
    this.#reader = reader;
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    if (verb !== "create" && verb !== "update") return false;
    if (group === "")
      return (
        (resource === "pods" && (subresource === "" || subresource === "ephemeralcontainers")) ||
        resource === "namespaces"
      );
    return templateKinds.has(resource) && subresource === "";
  }

  async validate(attributes: AdmissionAttributes): Promise<void> {
    const { resource, namespace, object, oldObject, name, warn } = attributes;
    if (resource === "namespaces") return checkLabels(object as Namespace);
    const spec = podSpecOf(object);
    if (spec === undefined || isDeepStrictEqual(spec, podSpecOf(oldObject))) return;
    const labels = (await this.#reader.get(namespaces, { name: namespace }))?.metadata.labels ?? {};
    const enforced = levelOf(labels, "enforce");
    const faults = podSecurityViolations(spec, enforced.level);
    if (resource === "pods" && faults !== "") {
      throw forbidden({ resource, name }, `violates PodSecurity "${enforced.text}": ${faults}`);
    }
    const warned = levelOf(labels, "warn");
    const warnings = podSecurityViolations(spec, warned.level);
    if (warnings !== "") warn(`would violate PodSecurity "${warned.text}": ${warnings}`);
  }
}

function podSpecOf(object: KubeObject | undefined): PodSpec | undefined {
  type Holder = PodSpec & { podTemplate?: { spec?: PodSpec }; template?: { spec?: PodSpec } };
  const spec = (object as Pod | undefined)?.spec as Holder | undefined;
  const found = object?.kind === "Pod" ? spec : (spec?.podTemplate ?? spec?.template)?.spec;
  return Array.isArray(found?.containers) ? found : undefined;
}

function levelOf(labels: Record<string, string>, mode: string): { level: SecurityLevel; text: string } {
  const value = labels[`${prefix}${mode}`] ?? "privileged";
  // A value that is not a level can only come from before it was checked; the strictest reading is the safe one.
  const level = (levels.includes(value) ? value : "restricted") as SecurityLevel;
  return { level, text: `${level}:${labels[`${prefix}${mode}-version`] ?? "latest"}` };
}

function checkLabels({ metadata }: Namespace): void {
  const causes = ["enforce", "warn", "audit"].flatMap((mode) => {
    const value = metadata.labels?.[`${prefix}${mode}`];
    if (value === undefined || levels.includes(value)) return [];
    const message = `Invalid value: "${value}": must be one of ${levels.join(", ")}`;
    return [{ reason: "FieldValueInvalid", message, field: `metadata.labels[${prefix}${mode}]` }];
  });
  if (causes.length > 0) throw invalid({ kind: "Namespace", name: metadata.name }, causes);
}
