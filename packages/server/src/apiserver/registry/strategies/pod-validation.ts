import { dnsLabelProblems } from "@agent-sandbox/api";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  jsonEqual,
  listAt,
  objectAt,
  stringAt,
} from "../../json/json.ts";
import {
  duplicate,
  type FieldError,
  forbiddenField,
  invalid,
  notFoundField,
  notSupported,
  required,
} from "../../schema/field-error.ts";

const restartPolicies = ["Always", "OnFailure", "Never"];
const dnsPolicies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const pullPolicies = ["Always", "IfNotPresent", "Never"];

/** Problems of a pod's spec that its schema cannot tell. */
export function validatePodSpec(spec: JsonObject): FieldError[] {
  const errors: FieldError[] = [];
  const containers = listAt(spec, "containers").filter(isJsonObject);
  if (containers.length === 0) errors.push(required("spec.containers"));
  const volumes = validateVolumes(spec, errors);
  const names = new Set<string>();
  for (const [index, container] of containers.entries()) {
    validateContainer({ container, path: `spec.containers[${index}]`, names, volumes }, errors);
  }
  for (const [index, container] of listAt(spec, "initContainers").filter(isJsonObject).entries()) {
    validateContainer({ container, path: `spec.initContainers[${index}]`, names, volumes }, errors);
  }
  oneOf({ spec, field: "restartPolicy", allowed: restartPolicies }, errors);
  oneOf({ spec, field: "dnsPolicy", allowed: dnsPolicies }, errors);
  const hostname = stringAt(spec, "hostname");
  if (hostname !== undefined && hostname !== "") {
    for (const problem of dnsLabelProblems(hostname)) errors.push(invalid("spec.hostname", hostname, problem));
  }
  return errors;
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
  }
  return names;
}

interface ContainerCheck {
  readonly container: JsonObject;
  readonly path: string;
  readonly names: Set<string>;
  readonly volumes: ReadonlySet<string>;
}

function validateContainer({ container, path, names, volumes }: ContainerCheck, errors: FieldError[]): void {
  const name = stringAt(container, "name") ?? "";
  if (name === "") errors.push(required(`${path}.name`));
  else {
    for (const problem of dnsLabelProblems(name)) errors.push(invalid(`${path}.name`, name, problem));
    if (names.has(name)) errors.push(duplicate(`${path}.name`, name));
  }
  names.add(name);
  const image = stringAt(container, "image") ?? "";
  if (image === "") errors.push(required(`${path}.image`));
  else if (image.trim() !== image)
    errors.push(invalid(`${path}.image`, image, "must not have leading or trailing whitespace"));
  const pull = stringAt(container, "imagePullPolicy") ?? "";
  if (!pullPolicies.includes(pull)) errors.push(notSupported(`${path}.imagePullPolicy`, pull, pullPolicies));
  validatePorts(container, path, errors);
  validateMounts({ container, path, names, volumes }, errors);
  for (const [index, variable] of listAt(container, "env").filter(isJsonObject).entries()) {
    if (!variable["name"]) errors.push(required(`${path}.env[${index}].name`));
    if (variable["value"] && variable["valueFrom"] !== undefined) {
      errors.push(invalid(`${path}.env[${index}].valueFrom`, "", "may not be specified when `value` is not empty"));
    }
  }
}

function validatePorts(container: JsonObject, path: string, errors: FieldError[]): void {
  const names = new Set<string>();
  for (const [index, port] of listAt(container, "ports").filter(isJsonObject).entries()) {
    const at = `${path}.ports[${index}]`;
    const number = port["containerPort"];
    if (typeof number !== "number" || number < 1 || number > 65_535) {
      if (number === undefined) errors.push(required(`${at}.containerPort`));
      else errors.push(invalid(`${at}.containerPort`, number, "must be between 1 and 65535, inclusive"));
    }
    const name = stringAt(port, "name");
    if (name === undefined || name === "") continue;
    if (names.has(name)) errors.push(duplicate(`${at}.name`, name));
    names.add(name);
  }
}

function validateMounts({ container, path, volumes }: ContainerCheck, errors: FieldError[]): void {
  const paths = new Set<string>();
  for (const [index, mount] of listAt(container, "volumeMounts").filter(isJsonObject).entries()) {
    const at = `${path}.volumeMounts[${index}]`;
    const name = stringAt(mount, "name") ?? "";
    if (name === "") errors.push(required(`${at}.name`));
    else if (!volumes.has(name)) errors.push(notFoundField(`${at}.name`, name));
    const mountPath = stringAt(mount, "mountPath") ?? "";
    if (mountPath === "") errors.push(required(`${at}.mountPath`));
    else if (paths.has(mountPath)) errors.push(invalid(`${at}.mountPath`, mountPath, "must be unique"));
    paths.add(mountPath);
  }
}

/** What of a running pod's spec may change. */
const mutableText =
  "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/** Refuses an update of anything in a pod's spec that is fixed for its life. */
export function validatePodUpdate(spec: JsonObject, old: JsonObject): FieldError[] {
  if (jsonEqual(fixedPart(spec), fixedPart(old))) return [];
  return [forbiddenField("spec", mutableText)];
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
