import {
  type Container,
  forbidden,
  type LimitRange,
  type LimitRangeItem,
  limitRanges,
  type PersistentVolumeClaim,
  type Pod,
  parseQuantity,
  type Quantity,
} from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";
import { type Amounts, parseAmounts, podResources } from "./pod-resources.ts";

const annotation = "kubernetes.io/limit-ranger";

/** Fills in what containers leave out and refuses what is outside a namespace's LimitRanges. */
export class LimitRanger implements Admission {
  readonly name = "LimitRanger";
  readonly #reader: ObjectReader;

  constructor(reader: ObjectReader) {
    this.#reader = reader;
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    if (group !== "" || subresource !== "") return false;
    return (
      (verb === "create" && resource === "pods") ||
      (verb !== "delete" && verb !== "connect" && resource === "persistentvolumeclaims")
    );
  }

  async mutate({ resource, namespace, object }: AdmissionAttributes): Promise<void> {
    if (resource !== "pods") return;
    const pod = object as Pod;
    const ranges = await this.#reader.list(limitRanges, namespace);
    const notes = ranges.flatMap((range) => applyDefaults(pod, range));
    if (notes.length === 0) return;
    const text = `LimitRanger plugin set: ${notes.join("; ")}`;
    pod.metadata.annotations = { ...pod.metadata.annotations, [annotation]: text };
  }

  async validate({ resource, namespace, object, name }: AdmissionAttributes): Promise<void> {
    const ranges = await this.#reader.list(limitRanges, namespace);
    const items = ranges.flatMap(({ spec }) => spec?.limits ?? []);
    const faults = items.flatMap((item) =>
      resource === "pods" ? podFaults(object as Pod, item) : claimFaults(object as PersistentVolumeClaim, item),
    );
    if (faults.length === 0) return;
    throw forbidden({ resource, name }, faults.length === 1 ? (faults[0] ?? "") : `[${faults.join(", ")}]`);
  }
}

function applyDefaults(pod: Pod, range: LimitRange): string[] {
  const items = (range.spec?.limits ?? []).filter(({ type }) => type === "Container");
  const defaults = {
    limits: Object.assign({}, ...items.map((item) => item.default)),
    requests: Object.assign({}, ...items.map((item) => item.defaultRequest)),
  };
  return [
    ...(pod.spec?.containers ?? []).flatMap((container) => fillIn(container, defaults, "container")),
    ...(pod.spec?.initContainers ?? []).flatMap((container) => fillIn(container, defaults, "init container")),
  ];
}

function fillIn(
  container: Container,
  defaults: { limits: Record<string, string>; requests: Record<string, string> },
  kind: string,
): string[] {
  const notes: string[] = [];
  for (const part of ["requests", "limits"] as const) {
    const present = container.resources?.[part] ?? {};
    const added = Object.keys(defaults[part])
      .filter((name) => present[name] === undefined)
      .sort();
    if (added.length === 0) continue;
    const filled = Object.fromEntries(added.map((name) => [name, defaults[part][name] ?? ""]));
    container.resources = { ...container.resources, [part]: { ...present, ...filled } };
    notes.push(`${added.join(", ")} ${part.slice(0, -1)} for ${kind} ${container.name}`);
  }
  return notes;
}

function podFaults({ spec }: Pod, item: LimitRangeItem): string[] {
  if (spec === undefined) return [];
  if (item.type === "Pod") return rangeFaults(item, podResources(spec, "requests"), podResources(spec, "limits"));
  if (item.type !== "Container") return [];
  return [...spec.containers, ...(spec.initContainers ?? [])].flatMap(({ resources }) =>
    rangeFaults(item, parseAmounts(resources?.requests), parseAmounts(resources?.limits)),
  );
}

function rangeFaults(item: LimitRangeItem, requests: Amounts, limits: Amounts): string[] {
  const each = (
    bounds: Record<string, string> | undefined,
    fault: (name: string, bound: Quantity) => string | undefined,
  ) =>
    Object.entries(bounds ?? {})
      .map(([name, bound]) => fault(name, parseQuantity(bound)))
      .filter((text) => text !== undefined);
  return [
    ...each(item.min, (name, bound) =>
      minFault(item.type, name, { bound, request: requests.get(name), limit: limits.get(name) }),
    ),
    ...each(item.max, (name, bound) =>
      maxFault(item.type, name, { bound, request: requests.get(name), limit: limits.get(name) }),
    ),
    ...each(item.maxLimitRequestRatio, (name, bound) =>
      ratioFault(item.type, name, { bound, request: requests.get(name), limit: limits.get(name) }),
    ),
  ];
}

interface Given {
  readonly bound: Quantity;
  readonly request: Quantity | undefined;
  readonly limit: Quantity | undefined;
}

function minFault(type: string, name: string, { bound, request, limit }: Given): string | undefined {
  const text = `minimum ${name} usage per ${type} is ${bound.toString()}`;
  if (request === undefined) return `${text}.  No request is specified`;
  if (request.compare(bound) < 0) return `${text}, but request is ${request.toString()}`;
  return limit !== undefined && limit.compare(bound) < 0 ? `${text}, but limit is ${limit.toString()}` : undefined;
}

function maxFault(type: string, name: string, { bound, request, limit }: Given): string | undefined {
  const text = `maximum ${name} usage per ${type} is ${bound.toString()}`;
  if (limit === undefined) return `${text}.  No limit is specified`;
  if (limit.compare(bound) > 0) return `${text}, but limit is ${limit.toString()}`;
  return request !== undefined && request.compare(bound) > 0
    ? `${text}, but request is ${request.toString()}`
    : undefined;
}

function ratioFault(type: string, name: string, { bound, request, limit }: Given): string | undefined {
  const text = `${name} max limit to request ratio per ${type} is ${bound.toString()}`;
  if (request === undefined || request.nanos === 0n) return `${text}, but no request is specified or request is 0`;
  if (limit === undefined || limit.nanos === 0n) return `${text}, but no limit is specified or limit is 0`;
  const ratio = Number(limit.nanos) / Number(request.nanos);
  return ratio > Number(bound.nanos) / 1e9 ? `${text}, but provided ratio is ${ratio.toFixed(6)}` : undefined;
}

function claimFaults({ spec }: PersistentVolumeClaim, item: LimitRangeItem): string[] {
  if (item.type !== "PersistentVolumeClaim") return [];
  const requests = parseAmounts(spec?.resources?.requests);
  return [...requests].flatMap(([name, request]) => {
    const [min, max] = [item.min?.[name], item.max?.[name]];
    const faults: string[] = [];
    if (min !== undefined && request.compare(parseQuantity(min)) < 0)
      faults.push(
        `minimum ${name} usage per ${item.type} is ${parseQuantity(min).toString()}, but request is ${request.toString()}`,
      );
    if (max !== undefined && request.compare(parseQuantity(max)) > 0)
      faults.push(
        `maximum ${name} usage per ${item.type} is ${parseQuantity(max).toString()}, but request is ${request.toString()}`,
      );
    return faults;
  });
}
