import type { ConfigMap, Container, EnvVarSource, Pod, Secret, Service } from "@agent-sandbox/api";
import { fieldValue, type NodeFacts, resourceFieldValue } from "../pod-spec/downward-api.ts";
import { expandReferences } from "./expand.ts";

/** The objects a container's variables refer to, as the caches have them. */
export interface EnvironmentSources {
  readonly configMap: (name: string) => ConfigMap | undefined;
  readonly secret: (name: string) => Secret | undefined;
  /** Services of the pod's namespace, and `kubernetes` of `default`. */
  readonly services: readonly Service[];
  readonly node: NodeFacts;
}

/** Either every variable, or why the container cannot be made yet (a CreateContainerConfigError). */
export type EnvironmentResult =
  | { readonly ok: true; readonly variables: ReadonlyMap<string, string> }
  | { readonly ok: false; readonly message: string };

/** The variables of one container, in the order and with the precedence of Kubernetes. */
export function containerEnvironment(pod: Pod, container: Container, sources: EnvironmentSources): EnvironmentResult {
  const variables = new Map<string, string>();
  if (pod.spec?.enableServiceLinks !== false) addServiceVariables(variables, sources.services);
  for (const source of container.envFrom ?? []) {
    const found = source.configMapRef
      ? {
          kind: "configmap",
          ref: source.configMapRef,
          entries: sources.configMap(source.configMapRef.name ?? "")?.data,
        }
      : { kind: "secret", ref: source.secretRef, entries: decodeSecret(sources.secret(source.secretRef?.name ?? "")) };
    if (found.entries === undefined && found.ref?.optional !== true && !exists(found.kind, found.ref?.name, sources)) {
      return { ok: false, message: `${found.kind} "${found.ref?.name ?? ""}" not found` };
    }
    for (const [name, value] of Object.entries(found.entries ?? {}))
      variables.set(`${source.prefix ?? ""}${name}`, value);
  }
  for (const { name, value, valueFrom } of container.env ?? []) {
    if (valueFrom === undefined) {
      variables.set(name, expandReferences(value ?? "", variables));
      continue;
    }
    const resolved = resolveSource({ pod, container, source: valueFrom, sources });
    if (!resolved.ok) return resolved;
    if (resolved.value !== undefined) variables.set(name, resolved.value);
  }
  return { ok: true, variables };
}

function exists(kind: string, name: string | undefined, sources: EnvironmentSources): boolean {
  return (kind === "configmap" ? sources.configMap(name ?? "") : sources.secret(name ?? "")) !== undefined;
}

type SourceResult =
  | { readonly ok: true; readonly value: string | undefined }
  | { readonly ok: false; readonly message: string };

interface SourceQuestion {
  readonly pod: Pod;
  readonly container: Container;
  readonly source: EnvVarSource;
  readonly sources: EnvironmentSources;
}

function resolveSource({ pod, container, source, sources }: SourceQuestion): SourceResult {
  if (source.fieldRef !== undefined)
    return { ok: true, value: fieldValue(pod, source.fieldRef.fieldPath, sources.node) };
  if (source.resourceFieldRef !== undefined) {
    const named = source.resourceFieldRef.containerName;
    const of = named === undefined ? container : (pod.spec?.containers.find(({ name }) => name === named) ?? container);
    return { ok: true, value: resourceFieldValue(of, source.resourceFieldRef, sources.node) };
  }
  if (source.configMapKeyRef !== undefined) {
    const { name = "", key, optional } = source.configMapKeyRef;
    return keyOf({ kind: "configmap", name, key, optional: optional === true, entries: sources.configMap(name)?.data });
  }
  if (source.secretKeyRef !== undefined) {
    const { name = "", key, optional } = source.secretKeyRef;
    const secret = sources.secret(name);
    const entries = secret === undefined ? undefined : decodeSecret(secret);
    return keyOf({ kind: "secret", name, key, optional: optional === true, entries });
  }
  return { ok: false, message: "a variable's valueFrom names no source this node supports" };
}

interface KeyQuestion {
  readonly kind: "configmap" | "secret";
  readonly name: string;
  readonly key: string;
  readonly optional: boolean;
  readonly entries: Readonly<Record<string, string>> | undefined;
}

function keyOf({ kind, name, key, optional, entries }: KeyQuestion): SourceResult {
  const value = entries?.[key];
  if (value !== undefined || optional) return { ok: true, value };
  if (entries === undefined) return { ok: false, message: `${kind} "${name}" not found` };
  const noun = kind === "configmap" ? "ConfigMap" : "Secret";
  return { ok: false, message: `couldn't find key ${key} in ${noun} ${name}` };
}

function decodeSecret(secret: Secret | undefined): Record<string, string> | undefined {
  if (secret === undefined) return undefined;
  return Object.fromEntries(
    Object.entries(secret.data ?? {}).map(([key, value]) => [key, Buffer.from(value, "base64").toString("utf8")]),
  );
}

/** `<NAME>_SERVICE_HOST` and `_SERVICE_PORT`, for services that have an address. */
function addServiceVariables(variables: Map<string, string>, services: readonly Service[]): void {
  for (const service of services) {
    const address = service.spec?.clusterIP;
    const [port] = service.spec?.ports ?? [];
    if (address === undefined || address === "" || address === "None" || port === undefined) continue;
    const prefix = (service.metadata.name ?? "").toUpperCase().replaceAll("-", "_");
    variables.set(`${prefix}_SERVICE_HOST`, address);
    variables.set(`${prefix}_SERVICE_PORT`, String(port.port));
    for (const named of service.spec?.ports ?? []) {
      if (named.name === undefined || named.name === "") continue;
      const suffix = named.name.toUpperCase().replaceAll("-", "_");
      variables.set(`${prefix}_SERVICE_PORT_${suffix}`, String(named.port));
    }
  }
}
