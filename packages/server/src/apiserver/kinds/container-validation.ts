import { dnsLabelProblems, isJsonObject, type JsonObject, type JsonValue } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt } from "../json/json.ts";
import {
  duplicate,
  type FieldError,
  forbiddenField,
  invalid,
  notFoundField,
  notSupported,
  required,
} from "../schema/field-error.ts";
import { validateContainerResources } from "./resource-amounts.ts";

const pullPolicies = ["Always", "IfNotPresent", "Never"];
const portProtocols = ["SCTP", "TCP", "UDP"];

/** A container and what of its pod it may refer to. */
export interface ContainerCheck {
  readonly container: JsonObject;
  readonly path: string;
  /** Names of the containers before it; its own is added. */
  readonly names: Set<string>;
  readonly volumes: ReadonlySet<string>;
  readonly isHostNetwork: boolean;
}

/** Problems of one container that its schema cannot tell. */
export function validateContainer(check: ContainerCheck, errors: FieldError[]): void {
  const { container, path, names } = check;
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
  for (const kind of ["livenessProbe", "readinessProbe", "startupProbe"]) {
    const probe = objectAt(container, kind);
    if (probe !== undefined) validateProbe(probe, { path: `${path}.${kind}`, kind }, errors);
  }
  validatePorts(check, errors);
  for (const [index, variable] of listAt(container, "env").filter(isJsonObject).entries())
    validateVariable(variable, `${path}.env[${index}]`, errors);
  validateMounts(check, errors);
  const pull = stringAt(container, "imagePullPolicy") ?? "";
  if (!pullPolicies.includes(pull)) errors.push(notSupported(`${path}.imagePullPolicy`, pull, pullPolicies));
  validateContainerResources(objectAt(container, "resources"), `${path}.resources`, errors);
  validateSecurityContext(objectAt(container, "securityContext"), `${path}.securityContext`, errors);
}

function validatePorts({ container, path, isHostNetwork }: ContainerCheck, errors: FieldError[]): void {
  const names = new Set<string>();
  for (const [index, port] of listAt(container, "ports").filter(isJsonObject).entries()) {
    const at = `${path}.ports[${index}]`;
    const name = stringAt(port, "name") ?? "";
    if (name !== "" && names.has(name)) errors.push(duplicate(`${at}.name`, name));
    names.add(name);
    const number = port["containerPort"];
    if (number === undefined) errors.push(required(`${at}.containerPort`));
    else if (!isPort(number))
      errors.push(invalid(`${at}.containerPort`, number, "must be between 1 and 65535, inclusive"));
    const hostPort = port["hostPort"] ?? 0;
    if (hostPort !== 0 && !isPort(hostPort))
      errors.push(invalid(`${at}.hostPort`, hostPort, "must be between 1 and 65535, inclusive"));
    else if (isHostNetwork && hostPort !== 0 && hostPort !== number)
      errors.push(invalid(`${at}.hostPort`, hostPort, "must match `containerPort` when `hostNetwork` is true"));
    const protocol = stringAt(port, "protocol") ?? "";
    if (protocol === "") errors.push(required(`${at}.protocol`));
    else if (!portProtocols.includes(protocol)) errors.push(notSupported(`${at}.protocol`, protocol, portProtocols));
  }
}

function isPort(value: JsonValue): boolean {
  return typeof value === "number" && value >= 1 && value <= 65_535;
}

/** What a variable may take from its pod. */
const variableFields = [
  "metadata.name",
  "metadata.namespace",
  "metadata.uid",
  "spec.nodeName",
  "spec.serviceAccountName",
  "status.hostIP",
  "status.hostIPs",
  "status.podIP",
  "status.podIPs",
];
/** Known, but a map: a variable must name one of its keys. */
const mapFields = ["metadata.annotations", "metadata.labels"];

function validateVariable(variable: JsonObject, path: string, errors: FieldError[]): void {
  if (!variable["name"]) errors.push(required(`${path}.name`));
  const source = objectAt(variable, "valueFrom");
  if (source === undefined) return;
  if (variable["value"])
    errors.push(invalid(`${path}.valueFrom`, "", "may not be specified when `value` is not empty"));
  const kinds = Object.keys(source);
  if (kinds.length === 0)
    errors.push(
      invalid(
        `${path}.valueFrom`,
        "",
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
      ),
    );
  if (kinds.length > 1)
    errors.push(invalid(`${path}.valueFrom`, "", "may not have more than one field specified at a time"));
  const field = objectAt(source, "fieldRef");
  if (field !== undefined) validateFieldReference(field, `${path}.valueFrom.fieldRef`, errors);
}

function validateFieldReference(field: JsonObject, path: string, errors: FieldError[]): void {
  const wanted = stringAt(field, "fieldPath") ?? "";
  if (wanted === "") {
    errors.push(required(`${path}.fieldPath`));
    return;
  }
  if (variableFields.includes(wanted) || /^metadata\.(labels|annotations)\['[^']+'\]$/.test(wanted)) return;
  if (mapFields.includes(wanted)) errors.push(notSupported(`${path}.fieldPath`, wanted, variableFields));
  else {
    const problem = `error converting fieldPath: field label not supported: ${wanted}`;
    errors.push(invalid(`${path}.fieldPath`, wanted, problem));
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

const handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
const probeNumbers = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];

function validateProbe(probe: JsonObject, { path, kind }: { path: string; kind: string }, errors: FieldError[]): void {
  const [first, ...others] = handlers.filter((handler) => probe[handler] !== undefined);
  if (first === undefined) errors.push(required(path, "must specify a handler type"));
  for (const other of others)
    errors.push(forbiddenField(`${path}.${other}`, "may not specify more than 1 handler type"));
  for (const field of probeNumbers) {
    const value = probe[field];
    if (typeof value === "number" && value < 0)
      errors.push(invalid(`${path}.${field}`, value, "must be greater than or equal to 0"));
  }
  const threshold = probe["successThreshold"];
  if (kind !== "readinessProbe" && threshold !== undefined && threshold !== 1)
    errors.push(invalid(`${path}.successThreshold`, threshold, "must be 1"));
}

/** Fields of a container's security context, in the order in which Kubernetes prints them. */
const securityFields = [
  "Capabilities",
  "Privileged",
  "SELinuxOptions",
  "WindowsOptions",
  "RunAsUser",
  "RunAsGroup",
  "RunAsNonRoot",
  "ReadOnlyRootFilesystem",
  "AllowPrivilegeEscalation",
  "ProcMount",
  "SeccompProfile",
  "AppArmorProfile",
];

function validateSecurityContext(context: JsonObject | undefined, path: string, errors: FieldError[]): void {
  if (context === undefined) return;
  validateIds(context, ["runAsUser", "runAsGroup"], path, errors);
  if (context["allowPrivilegeEscalation"] !== false) return;
  const added = listAt(objectAt(context, "capabilities"), "add");
  const reason =
    context["privileged"] === true ? "privileged" : added.includes("CAP_SYS_ADMIN") ? "capabilities.Add" : "";
  if (reason === "") return;
  const shown = securityFields.map((name) => [name, context[`${name[0]?.toLowerCase()}${name.slice(1)}`] ?? null]);
  const what = reason === "privileged" ? "`privileged` to true" : "`capabilities.Add` CAP_SYS_ADMIN";
  errors.push(invalid(path, Object.fromEntries(shown), `cannot set \`allowPrivilegeEscalation\` to false and ${what}`));
}

/** User and group ids, of a container or of its pod. */
export function validateIds(context: JsonObject, fields: readonly string[], path: string, errors: FieldError[]): void {
  for (const field of fields) {
    const id = context[field];
    if (typeof id === "number" && (id < 0 || id > 2_147_483_647))
      errors.push(invalid(`${path}.${field}`, id, "must be between 0 and 2147483647, inclusive"));
  }
}
