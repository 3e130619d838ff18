import { dnsLabelProblems, isJsonObject, type JsonObject, type JsonValue, jsonEqual } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt } from "../json/json.ts";
import { duplicate, type FieldError, forbiddenField, invalid, notSupported, required } from "../schema/field-error.ts";
import { validateContainer, validateIds } from "./container-validation.ts";

const restartPolicies = ["Always", "OnFailure", "Never"];
const dnsPolicies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const tolerationOperators = ["Equal", "Exists"];

/** Problems of a pod's spec that its schema cannot tell. */
export function validatePodSpec(spec: JsonObject): FieldError[] {
  const errors: FieldError[] = [];
  const containers = listAt(spec, "containers").filter(isJsonObject);
  if (containers.length === 0) errors.push(required("spec.containers"));
  const volumes = validateVolumes(spec, errors);
  const context = { names: new Set<string>(), volumes, isHostNetwork: spec["hostNetwork"] === true };
  for (const [index, container] of containers.entries()) {
    validateContainer({ container, path: `spec.containers[${index}]`, ...context }, errors);
  }
  for (const [index, container] of listAt(spec, "initContainers").filter(isJsonObject).entries()) {
    validateContainer({ container, path: `spec.initContainers[${index}]`, ...context }, errors);
  }
  oneOf({ spec, field: "restartPolicy", allowed: restartPolicies }, errors);
  oneOf({ spec, field: "dnsPolicy", allowed: dnsPolicies }, errors);
  const hostname = stringAt(spec, "hostname");
  if (hostname !== undefined && hostname !== "") {
    for (const problem of dnsLabelProblems(hostname)) errors.push(invalid("spec.hostname", hostname, problem));
  }
  validateIds(
    objectAt(spec, "securityContext") ?? {},
    ["runAsUser", "runAsGroup", "fsGroup"],
    "spec.securityContext",
    errors,
  );
  validateDnsServers(spec, errors);
  validateTolerations(spec, errors);
  const deadline = spec["activeDeadlineSeconds"];
  if (typeof deadline === "number" && (deadline < 1 || deadline > 2_147_483_647))
    errors.push(invalid("spec.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"));
  return errors;
}

function validateDnsServers(spec: JsonObject, errors: FieldError[]): void {
  if (spec["dnsPolicy"] !== "None") return;
  const config = objectAt(spec, "dnsConfig");
  if (config === undefined)
    errors.push(required("spec.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None"));
  else if (listAt(config, "nameservers").length === 0)
    errors.push(
      required("spec.dnsConfig.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None"),
    );
}

function validateTolerations(spec: JsonObject, errors: FieldError[]): void {
  for (const [index, toleration] of listAt(spec, "tolerations").filter(isJsonObject).entries()) {
    const operator = stringAt(toleration, "operator") ?? "";
    if (operator !== "" && !tolerationOperators.includes(operator))
      errors.push(notSupported(`spec.tolerations[${index}].operator`, operator, tolerationOperators));
  }
}

function oneOf(
  { spec, field, allowed }: { spec: JsonObject; field: string; allowed: string[] },
  errors: FieldError[],
): void {
  const value = stringAt(spec, field) ?? "";
  if (!allowed.includes(value)) errors.push(notSupported(`spec.${field}`, value, allowed));
}

function validateVolumes(spec: JsonObject, errors: FieldError[]): Set<string> {
  const names = new Set<string>();
  for (const [index, volume] of listAt(spec, "volumes").filter(isJsonObject).entries()) {
    const path = `spec.volumes[${index}]`;
    const name = stringAt(volume, "name") ?? "";
    if (name === "") errors.push(required(`${path}.name`));
    else {
      for (const problem of dnsLabelProblems(name)) errors.push(invalid(`${path}.name`, name, problem));
      if (names.has(name)) errors.push(duplicate(`${path}.name`, name));
    }
    names.add(name);
    const sources = Object.keys(volume).filter((key) => key !== "name");
    if (sources.length > 1)
      errors.push(forbiddenField(`${path}.${sources[1] ?? ""}`, "may not specify more than 1 volume type"));
    for (const [source, field] of Object.entries(sourceFields)) {
      const value = objectAt(volume, source);
      if (value !== undefined && !value[field]) errors.push(required(`${path}.${source}.${field}`));
    }
  }
  return names;
}

/** What a volume of each sort cannot do without. */
const sourceFields: Readonly<Record<string, string>> = {
  persistentVolumeClaim: "claimName",
  secret: "secretName",
  configMap: "name",
  hostPath: "path",
};

/** What of a running pod's spec may change. */
const mutableText =
  "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/** Refuses an update of anything in a pod's spec that is fixed for its life. */
export function validatePodUpdate(spec: JsonObject, old: JsonObject): FieldError[] {
  if (!keepsTolerations(spec, old)) {
    return [forbiddenField("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")];
  }
  if (jsonEqual(fixedPart(spec), fixedPart(old))) return [];
  return [forbiddenField("spec", mutableText)];
}

/** Tolerations may be added, and the time of one may change. */
function keepsTolerations(spec: JsonObject, old: JsonObject): boolean {
  const timeless = (list: JsonValue[]): JsonValue[] =>
    list.filter(isJsonObject).map(({ tolerationSeconds: _seconds, ...rest }) => rest as JsonObject);
  const kept = timeless(listAt(spec, "tolerations"));
  return timeless(listAt(old, "tolerations")).every((one) => kept.some((other) => jsonEqual(one, other)));
}

function fixedPart(spec: JsonObject): JsonObject {
  const { activeDeadlineSeconds: _deadline, tolerations: _tolerations, ...rest } = spec;
  const withoutImage = (list: JsonValue[]): JsonValue[] =>
    list.map((item) => (isJsonObject(item) ? { ...item, image: "" } : item));
  return {
    ...(rest as JsonObject),
    containers: withoutImage(listAt(spec, "containers")),
    initContainers: withoutImage(listAt(spec, "initContainers")),
    ...(objectAt(spec, "resources") === undefined ? {} : { resources: spec["resources"] }),
  };
}
