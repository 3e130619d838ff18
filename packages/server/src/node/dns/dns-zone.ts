import type { Answer, Question } from "dns-packet";

/** What the zone's names mean at this moment; each lookup reads caches and waits for nothing. */
export interface ZoneRecords {
  /** Address of a Sandbox, asleep or awake. */
  readonly sandbox: (namespace: string, name: string) => string | undefined;
  readonly service: (namespace: string, name: string) => ServiceRecord | undefined;
  /** Whether a pod of that namespace has the address. */
  readonly hasPod: (namespace: string, address: string) => boolean;
}

/** A Service as the zone sees it. */
export interface ServiceRecord {
  /** Absent: headless. */
  readonly clusterIp?: string;
  readonly externalName?: string;
  readonly endpoints: readonly { readonly address: string; readonly hostname?: string }[];
  readonly ports: readonly { readonly name: string; readonly protocol: string; readonly port: number }[];
}

/** Either answers (perhaps none, for a name that exists), or that the name does not exist, or that it is not ours. */
export type ZoneReply =
  | { readonly kind: "answers"; readonly answers: readonly Answer[] }
  | { readonly kind: "no-such-name" }
  | { readonly kind: "not-ours" };

/** Seconds an answer may be kept: short, because sandboxes come and go. */
export const zoneTtlSeconds = 5;

/** Answers a question from the cluster's zone. */
export function answerFromZone(
  { name, type }: Pick<Question, "name" | "type">,
  domain: string,
  records: ZoneRecords,
): ZoneReply {
  const lower = name.toLowerCase().replace(/\.$/, "");
  if (lower === domain) return { kind: "answers", answers: [] };
  if (!lower.endsWith(`.${domain}`)) return { kind: "not-ours" };
  const labels = lower.slice(0, -(domain.length + 1)).split(".");
  const kind = labels.at(-1);
  if (kind === "svc") return answerService({ name, type, labels: labels.slice(0, -1), domain, records });
  if (kind === "pod") return answerPod({ name, type, labels: labels.slice(0, -1), records });
  return { kind: "no-such-name" };
}

interface ServiceQuestion {
  readonly name: string;
  readonly type: Question["type"];
  readonly labels: readonly string[];
  readonly domain: string;
  readonly records: ZoneRecords;
}

function answerService({ name, type, labels, domain, records }: ServiceQuestion): ZoneReply {
  const namespace = labels.at(-1);
  const service = labels.at(-2);
  if (namespace === undefined) return { kind: "answers", answers: [] };
  if (service === undefined) return { kind: "answers", answers: [] };
  const rest = labels.slice(0, -2);
  const sandbox = records.sandbox(namespace, service);
  const record = records.service(namespace, service);
  if (rest.length === 0) {
    if (sandbox !== undefined && record?.clusterIp === undefined) return addresses(name, type, [sandbox]);
    if (record === undefined) return { kind: "no-such-name" };
    if (record.externalName !== undefined) return { kind: "answers", answers: [cname(name, record.externalName)] };
    const found = record.clusterIp === undefined ? record.endpoints.map(({ address }) => address) : [record.clusterIp];
    return addresses(name, type, found);
  }
  if (rest.length === 2 && rest[0]?.startsWith("_") && record !== undefined) {
    return answerSrv({
      name,
      type,
      portName: rest[0].slice(1),
      protocol: rest[1]?.slice(1) ?? "",
      target: `${service}.${namespace}.svc.${domain}`,
      record,
    });
  }
  const hosts = record?.endpoints.filter(({ hostname }) => rest.length === 1 && hostname === rest[0]) ?? [];
  if (hosts.length === 0) return { kind: "no-such-name" };
  return addresses(
    name,
    type,
    hosts.map(({ address }) => address),
  );
}

interface SrvQuestion {
  readonly name: string;
  readonly type: Question["type"];
  readonly portName: string;
  readonly protocol: string;
  readonly target: string;
  readonly record: ServiceRecord;
}

function answerSrv({ name, type, portName, protocol, target, record }: SrvQuestion): ZoneReply {
  const ports = record.ports.filter((port) => port.name === portName && port.protocol.toLowerCase() === protocol);
  if (ports.length === 0) return { kind: "no-such-name" };
  if (type !== "SRV") return { kind: "answers", answers: [] };
  const answers = ports.map(
    ({ port }): Answer => ({
      type: "SRV",
      name,
      ttl: zoneTtlSeconds,
      data: { port, target, priority: 0, weight: 100 },
    }),
  );
  return { kind: "answers", answers };
}

function answerPod({ name, type, labels, records }: Omit<ServiceQuestion, "domain">): ZoneReply {
  const [dashed, namespace] = labels;
  const match = /^(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})$/.exec(dashed ?? "");
  if (labels.length !== 2 || match === null || namespace === undefined) return { kind: "no-such-name" };
  const address = match.slice(1).map(Number).join(".");
  if (!records.hasPod(namespace, address)) return { kind: "no-such-name" };
  return addresses(name, type, [address]);
}

/** Sandboxes have IPv4 alone: another type of a name that exists has no answer, and that is not an error. */
function addresses(name: string, type: Question["type"], found: readonly string[]): ZoneReply {
  if (type !== "A") return { kind: "answers", answers: [] };
  return { kind: "answers", answers: found.map((data): Answer => ({ type: "A", name, ttl: zoneTtlSeconds, data })) };
}

function cname(name: string, target: string): Answer {
  return { type: "CNAME", name, ttl: zoneTtlSeconds, data: target };
}
