import {
  type DnsQuestion,
  dnsType,
  headBytes,
  isTruncated,
  questionKey,
  rcode,
  rcodeOf,
  tryReadRecords,
} from "./dns-message.ts";

/** Bytes kept for one tenant and for all. Full: the oldest of the same tenant goes, or of the tenant that holds the most. */
const tenantBytesMax = 512 * 1024;
const totalBytesMax = 8 * 1024 * 1024;

/** What an entry costs besides its answer, about. */
const entryBytes = 256;

/** A longer answer is not kept: it would take the place of dozens. */
const answerBytesMax = 4 * 1024;

/** Longest time an answer is kept, whatever its owner says, and the longest for a name or type that is not there. */
const ttlMaxSeconds = 300;
const negativeTtlMaxSeconds = 30;

interface Entry {
  readonly answer: Buffer;
  /** Where the times to live are, which grow shorter while the answer is kept. */
  readonly ttlsAt: readonly number[];
  readonly keptMs: number;
  readonly untilMs: number;
}

interface Tenant {
  readonly entries: Map<string, Entry>;
  bytes: number;
}

/**
 * Answers of resolvers, for each tenant its own: what one asks neither pushes out what another asked nor shows by its speed that it was asked.
 *
 * Invariant: an answer is given only to the question it was given to: name, type, class, and whatever else changes it.
 */
export class DnsCache {
  readonly #tenants = new Map<string, Tenant>();
  #bytes = 0;

  /** Bytes held, by this cache's own count. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A copy of the answer with its times to live as of this moment; undefined where none is kept. */
  get(tenant: string, question: DnsQuestion, nowMs: number): Buffer | undefined {
    const entry = this.#tenants.get(tenant)?.entries.get(questionKey(question));
    if (entry === undefined || entry.untilMs <= nowMs) return undefined;
    const copy = Buffer.from(entry.answer);
    const ageSeconds = Math.floor((nowMs - entry.keptMs) / 1000);
    for (const at of entry.ttlsAt) copy.writeUInt32BE(Math.max(0, copy.readUInt32BE(at) - ageSeconds), at);
    return copy;
  }

  /** Keeps an answer for as long as RFC 1035 and RFC 2308 let it be kept. */
  keep(tenant: string, question: DnsQuestion, answer: Buffer, nowMs: number): void {
    const lifetime = lifetimeOf(question, answer);
    if (lifetime === undefined || answer.length > answerBytesMax) return;
    const key = questionKey(question);
    const own = this.#tenants.get(tenant) ?? { entries: new Map<string, Entry>(), bytes: 0 };
    this.#tenants.set(tenant, own);
    this.#drop(own, key);
    const bytes = answer.length + entryBytes;
    while (own.bytes + bytes > tenantBytesMax) this.#dropOldest(own);
    while (this.#bytes + bytes > totalBytesMax) this.#dropOldest(this.#largest());
    const untilMs = nowMs + lifetime.seconds * 1000;
    own.entries.set(key, { answer, ttlsAt: lifetime.ttlsAt, keptMs: nowMs, untilMs });
    own.bytes += bytes;
    this.#bytes += bytes;
  }

  #dropOldest(tenant: Tenant): void {
    const [oldest] = tenant.entries.keys();
    if (oldest !== undefined) this.#drop(tenant, oldest);
  }

  #drop(tenant: Tenant, key: string): void {
    const entry = tenant.entries.get(key);
    if (entry === undefined) return;
    tenant.entries.delete(key);
    tenant.bytes -= entry.answer.length + entryBytes;
    this.#bytes -= entry.answer.length + entryBytes;
  }

  #largest(): Tenant {
    let largest: Tenant = { entries: new Map(), bytes: 0 };
    for (const [name, tenant] of this.#tenants) {
      if (tenant.entries.size === 0) this.#tenants.delete(name);
      else if (tenant.bytes > largest.bytes) largest = tenant;
    }
    return largest;
  }
}

/**
 * How long an answer may be kept; undefined: not at all. A name or type that is not there is kept only where the zone's
 * start of authority says for how long (RFC 2308); a failure never.
 */
function lifetimeOf(question: DnsQuestion, answer: Buffer): { seconds: number; ttlsAt: number[] } | undefined {
  const code = rcodeOf(answer);
  if (isTruncated(answer) || (code !== rcode.noError && code !== rcode.noSuchName)) return undefined;
  const records = tryReadRecords(answer, headBytes + question.wire.length);
  if (records === undefined) return undefined;
  const answers = records.filter(({ section }) => section === "answer");
  const wanted = ({ type }: { type: number }): boolean => type === question.type || question.type === dnsType.any;
  const ttls = answers.map(({ ttl }) => ttl);
  if (code === rcode.noSuchName || !answers.some(wanted)) {
    const soa = records.find(
      ({ section, type, dataBytes }) => section === "authority" && type === dnsType.soa && dataBytes >= 22,
    );
    if (soa === undefined) return undefined;
    ttls.push(soa.ttl, answer.readUInt32BE(soa.dataAt + soa.dataBytes - 4), negativeTtlMaxSeconds);
  }
  const seconds = Math.min(...ttls, ttlMaxSeconds);
  // An OPT record's field is no time.
  const ttlsAt = records.filter(({ type }) => type !== dnsType.opt).map(({ ttlAt }) => ttlAt);
  return seconds <= 0 ? undefined : { seconds, ttlsAt };
}
