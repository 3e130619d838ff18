import {
  ApiError,
  forbidden,
  type KubeObject,
  type Pod,
  parseQuantity,
  type Quantity,
  type Resource,
  type ResourceQuota,
  resourceQuotas,
  zeroQuantity,
} from "@agent-sandbox/api";
import type { ObjectReader, StatusWriter } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";
import { type Amounts, addTo } from "./pod-resources.ts";
import { quotaCovers, usageOf } from "./quota-usage.ts";

/** Writers of one namespace rarely meet; after this many lost races something else is wrong. */
const attemptsMax = 10;

/** Refuses what would exceed a quota and books what does not, under the quota's own resourceVersion. */
export class ResourceQuotaAdmission implements Admission {
  readonly name = "ResourceQuota";
  readonly #reader: ObjectReader;
  readonly #writer: StatusWriter;

  constructor(reader: ObjectReader, writer: StatusWriter) {
    this.#reader = reader;
    this.#writer = writer;
  }

  handles({ verb, group, resource, subresource, namespace }: AdmissionAttributes): boolean {
    if (namespace === "" || subresource !== "" || (group === "" && resource === "resourcequotas")) return false;
    return verb === "create" || (verb === "update" && group === "" && resource === "persistentvolumeclaims");
  }

  async validate(attributes: AdmissionAttributes): Promise<void> {
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      if (await this.#book(attributes)) return;
    }
    throw new ApiError("Conflict", `quota usage of namespace ${attributes.namespace} changes too fast; try again`);
  }

  /** False when another request booked meanwhile. */
  async #book(attributes: AdmissionAttributes): Promise<boolean> {
    const { namespace, group, resource, object, dryRun } = attributes;
    if (object === undefined) return true;
    const quotas = (await this.#reader.list(resourceQuotas, namespace)).filter((quota) =>
      quotaCovers(quota, group, resource, object),
    );
    if (quotas.length === 0) return true;
    const delta = deltaOf(attributes);
    const booked: ResourceQuota[] = [];
    for (const quota of quotas) {
      const names = [...delta.keys()].filter((name) => quota.spec?.hard?.[name] !== undefined);
      checkSpecified(quota, attributes);
      if (names.length === 0) continue;
      const used = await this.#usedOf(quota, names, attributes);
      checkFits(quota, { names, delta, used }, attributes);
      booked.push(withUsed(quota, names, delta, used));
    }
    return dryRun || this.#write(booked);
  }

  async #usedOf(quota: ResourceQuota, names: readonly string[], attributes: AdmissionAttributes): Promise<Amounts> {
    const status = quota.status?.used ?? {};
    if (names.every((name) => status[name] !== undefined)) {
      return new Map(names.map((name) => [name, parseQuantity(status[name] ?? "0")]));
    }
    // A quota made a moment ago has not been counted yet: count what this request is about.
    const { group, version, resource, namespace, object } = attributes;
    const kind: Resource<KubeObject> = { group, version, resource, kind: object?.kind ?? "", namespaced: true };
    const sum = new Map<string, Quantity>();
    for (const other of await this.#reader.list(kind, namespace)) {
      if (quotaCovers(quota, group, resource, other)) addTo(sum, usageOf(group, resource, other));
    }
    return sum;
  }

  async #write(quotas: readonly ResourceQuota[]): Promise<boolean> {
    for (const quota of quotas) {
      try {
        await this.#writer.updateStatus(resourceQuotas, quota);
      } catch (error) {
        if (error instanceof ApiError && error.reason === "Conflict") return false;
        throw error;
      }
    }
    return true;
  }
}

/** Only growth is booked; what an object gives back is counted when it is gone. */
function deltaOf({ group, resource, object, oldObject }: AdmissionAttributes): Amounts {
  const after = usageOf(group, resource, object as KubeObject);
  if (oldObject === undefined) return after;
  const before = usageOf(group, resource, oldObject);
  const grown = [...after].map(([name, amount]): [string, Quantity] => [
    name,
    amount.sub(before.get(name) ?? zeroQuantity),
  ]);
  return new Map(grown.filter(([, amount]) => amount.nanos > 0n));
}

/** A quota on cpu or memory obliges every container to say how much. */
function checkSpecified(quota: ResourceQuota, { group, resource, object, name }: AdmissionAttributes): void {
  if (group !== "" || resource !== "pods") return;
  const { spec } = object as Pod;
  const missing: string[] = [];
  for (const limited of Object.keys(quota.spec?.hard ?? {}).sort()) {
    const [, kind = "requests", amount] = /^(?:(requests|limits)\.)?(cpu|memory)$/.exec(limited) ?? [];
    if (amount === undefined || spec?.resources?.[kind as "requests" | "limits"]?.[amount] !== undefined) continue;
    const silent = [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])]
      .filter(({ resources }) => resources?.[kind as "requests" | "limits"]?.[amount] === undefined)
      .map((container) => container.name);
    if (silent.length > 0) missing.push(`${limited} for: ${silent.join(",")}`);
  }
  if (missing.length === 0) return;
  throw forbidden({ resource, name }, `failed quota: ${quota.metadata.name}: must specify ${missing.join("; ")}`);
}

interface Booking {
  readonly names: readonly string[];
  readonly delta: Amounts;
  readonly used: Amounts;
}

function checkFits(
  quota: ResourceQuota,
  { names, delta, used }: Booking,
  { group, resource, name }: AdmissionAttributes,
): void {
  const hard = quota.spec?.hard ?? {};
  const exceeded = names
    .filter((each) => total(each, delta, used).compare(parseQuantity(hard[each] ?? "0")) > 0)
    .sort();
  if (exceeded.length === 0) return;
  const list = (amount: (each: string) => string) => exceeded.map((each) => `${each}=${amount(each)}`).join(",");
  const requested = list((each) => (delta.get(each) ?? zeroQuantity).toString());
  const before = list((each) => (used.get(each) ?? zeroQuantity).toString());
  const limited = list((each) => hard[each] ?? "");
  const why = `exceeded quota: ${quota.metadata.name}, requested: ${requested}, used: ${before}, limited: ${limited}`;
  throw forbidden({ group, resource, name }, why);
}

function withUsed(quota: ResourceQuota, names: readonly string[], delta: Amounts, used: Amounts): ResourceQuota {
  const fresh = Object.fromEntries(names.map((name) => [name, total(name, delta, used).toString()]));
  return { ...quota, status: { hard: { ...quota.spec?.hard }, used: { ...quota.status?.used, ...fresh } } };
}

function total(name: string, delta: Amounts, used: Amounts): Quantity {
  return (used.get(name) ?? zeroQuantity).add(delta.get(name) ?? zeroQuantity);
}
