import type { OwnerReference, Sandbox, Service, ServicePort } from "@agent-sandbox/api";
import { controllerReference, labelKeys, nameHash, ownershipOf, sandboxes, withReference } from "@agent-sandbox/api";
import { adoptionRefusal, foreignOwnerMessage } from "../adoption.ts";
import { servicePortsOf } from "./service-ports.ts";

/** A change of the Sandbox's headless Service. */
export type ServiceAction =
  | { readonly do: "create-service"; readonly service: Service }
  | { readonly do: "adopt-service"; readonly service: Service }
  | { readonly do: "patch-service"; readonly name: string; readonly body: unknown }
  | { readonly do: "delete-service"; readonly name: string; readonly uid: string };

/** The Service's part of a pass: at most one action, and what the status says about it. */
export interface ServicePlan {
  readonly action?: ServiceAction;
  readonly failure?: string;
  /** `set` and `clear` concern status.service and serviceFQDN; `keep` leaves them as they were. */
  readonly status: "set" | "clear" | "keep";
}

/** Decides create, adopt, repair or delete by the tri-state `spec.service`. */
export function planService(sandbox: Sandbox, service: Service | undefined): ServicePlan {
  const wanted = sandbox.spec.service;
  if (service === undefined) {
    if (wanted !== true) return { status: "clear" };
    return { action: { do: "create-service", service: newService(sandbox) }, status: "set" };
  }
  const ownership = ownershipOf(service, sandboxes, sandbox);
  if (wanted === false) {
    if (ownership !== "owned") return { status: "clear" };
    return {
      action: { do: "delete-service", name: sandbox.metadata.name, uid: service.metadata.uid ?? "" },
      status: "clear",
    };
  }
  if (ownership === "owned") return planRepair(sandbox, service);
  // No Service is wanted, so a stranger's Service of the same name is none of our business.
  if (wanted !== true) return { status: "clear" };
  if (ownership === "other") {
    return { failure: foreignOwnerMessage("service", service, sandbox.metadata.name), status: "keep" };
  }
  return planAdoption(sandbox, service);
}

function planAdoption(sandbox: Sandbox, service: Service): ServicePlan {
  const refusal = adoptionRefusal("service", service, nameHash(sandbox.metadata.name));
  if (refusal !== undefined) return { failure: refusal, status: "keep" };
  const clusterIp = service.spec?.clusterIP ?? "";
  if (clusterIp !== "None" && clusterIp !== "") {
    return {
      failure: `cannot adopt service "${service.metadata.name}": ClusterIP is "${clusterIp}" (expected "None", field is immutable)`,
      status: "keep",
    };
  }
  const desired = newService(sandbox);
  const adopted: Service = {
    ...service,
    apiVersion: "v1",
    kind: "Service",
    metadata: {
      ...service.metadata,
      labels: { ...service.metadata.labels, ...desired.metadata.labels },
      ownerReferences: withReference(service.metadata.ownerReferences, reference(sandbox)),
    },
    spec: { ...withoutPorts(service.spec), ...desired.spec },
  };
  return { action: { do: "adopt-service", service: adopted }, status: "set" };
}

function withoutPorts(spec: Service["spec"]): Omit<NonNullable<Service["spec"]>, "ports"> {
  const { ports: _ports, ...rest } = spec ?? {};
  return rest;
}

function planRepair(sandbox: Sandbox, service: Service): ServicePlan {
  const hash = nameHash(sandbox.metadata.name);
  const body: { metadata?: unknown; spec?: Record<string, unknown> } = {};
  if (service.metadata.labels?.[labelKeys.sandboxNameHash] !== hash)
    body.metadata = { labels: { [labelKeys.sandboxNameHash]: hash } };
  const selector = selectorRepair(service.spec?.selector, hash);
  if (selector !== undefined) body.spec = { selector };
  if (sandbox.spec.service === true) {
    const ports = servicePortsOf(sandbox.spec.podTemplate.spec);
    if (!samePorts(service.spec?.ports ?? [], ports))
      body.spec = { ...body.spec, ports: ports.length > 0 ? ports : null };
  }
  if (body.metadata === undefined && body.spec === undefined) return { status: "set" };
  return { action: { do: "patch-service", name: sandbox.metadata.name, body }, status: "set" };
}

/** Exactly our key remains: a merge patch must name what it removes. */
function selectorRepair(
  selector: Record<string, string> | undefined,
  hash: string,
): Record<string, string | null> | undefined {
  const extra = Object.keys(selector ?? {}).filter((key) => key !== labelKeys.sandboxNameHash);
  if (extra.length === 0 && selector?.[labelKeys.sandboxNameHash] === hash) return undefined;
  return { ...Object.fromEntries(extra.map((key) => [key, null])), [labelKeys.sandboxNameHash]: hash };
}

/** In order, and only the fields we set: what others add to a port stays. */
function samePorts(present: readonly ServicePort[], wanted: readonly ServicePort[]): boolean {
  if (present.length !== wanted.length) return false;
  return wanted.every((port, index) => {
    const other = present[index];
    return (
      other !== undefined &&
      (other.name ?? "") === (port.name ?? "") &&
      (other.protocol ?? "TCP") === port.protocol &&
      other.port === port.port &&
      (other.targetPort ?? other.port) === port.targetPort
    );
  });
}

function newService(sandbox: Sandbox): Service {
  const tracking = { [labelKeys.sandboxNameHash]: nameHash(sandbox.metadata.name) };
  const ports = servicePortsOf(sandbox.spec.podTemplate.spec);
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: {
      name: sandbox.metadata.name,
      namespace: sandbox.metadata.namespace ?? "",
      labels: tracking,
      ownerReferences: [reference(sandbox)],
    },
    spec: { clusterIP: "None", selector: tracking, ...(ports.length > 0 ? { ports } : {}) },
  };
}

function reference(sandbox: Sandbox): OwnerReference {
  return controllerReference(sandboxes, sandbox);
}
