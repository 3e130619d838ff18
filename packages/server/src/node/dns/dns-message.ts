/** The fixed part of every message. */
export const headBytes = 12;

/** Classes and types that are told apart here; all others are only passed on. */
export const dnsClass = { internet: 1 } as const;
export const dnsType = { cname: 5, soa: 6, opt: 41, transferFirst: 251, transferLast: 252, any: 255 } as const;

/** Answer codes. */
export const rcode = {
  noError: 0,
  formatError: 1,
  serverFailure: 2,
  noSuchName: 3,
  notImplemented: 4,
  refused: 5,
} as const;

const flag = {
  response: 0x8000,
  opcode: 0x7800,
  truncated: 0x0200,
  recursionDesired: 0x0100,
  recursionAvailable: 0x0080,
  checkingDisabled: 0x0010,
} as const;

/** Set in the flags of an OPT record by an asker that wants signatures. */
const dnssecOk = 0x8000;

/** A name has no more bytes than this on the wire. */
const nameBytesMax = 255;

/** One question as it was asked. */
export interface DnsQuestion {
  readonly id: number;
  /** In lower case, with dots; for the zone. */
  readonly name: string;
  readonly type: number;
  readonly class: number;
  /** Name, type and class as they were sent; an answer repeats them to the letter. */
  readonly wire: Buffer;
  readonly wantsRecursion: boolean;
  readonly isCheckingDisabled: boolean;
  /** Absent: the asker knows no EDNS, and an answer must not have it either. */
  readonly edns?: { readonly udpBytes: number; readonly wantsSignatures: boolean };
}

/** A query that can be answered, one that can only be refused, or (undefined) bytes that deserve no answer. */
export type ParsedQuery =
  | { readonly kind: "question"; readonly question: DnsQuestion }
  | { readonly kind: "refused"; readonly id: number; readonly code: number };

/** One resource record, by where it lies in its message. */
export interface DnsRecord {
  readonly section: "answer" | "authority" | "additional";
  readonly type: number;
  readonly class: number;
  readonly ttl: number;
  readonly ttlAt: number;
  readonly dataAt: number;
  readonly dataBytes: number;
}

/** Reads a query. Never throws: what a sandbox sends is one of the three outcomes. */
export function tryParseQuery(bytes: Buffer): ParsedQuery | undefined {
  if (bytes.length < headBytes) return undefined;
  const id = bytes.readUInt16BE(0);
  const flags = bytes.readUInt16BE(2);
  if ((flags & flag.response) !== 0) return undefined;
  if ((flags & flag.opcode) !== 0) return { kind: "refused", id, code: rcode.notImplemented };
  const nameEnd = bytes.readUInt16BE(4) === 1 ? plainNameEnd(bytes, headBytes) : undefined;
  const records = nameEnd === undefined ? undefined : tryReadRecords(bytes, nameEnd + 4);
  if (nameEnd === undefined || records === undefined) return { kind: "refused", id, code: rcode.formatError };
  const wire = bytes.subarray(headBytes, nameEnd + 4);
  const opt = records.find(({ type, section }) => type === dnsType.opt && section === "additional");
  const question: DnsQuestion = {
    id,
    name: textOfName(wire),
    type: bytes.readUInt16BE(nameEnd),
    class: bytes.readUInt16BE(nameEnd + 2),
    wire,
    wantsRecursion: (flags & flag.recursionDesired) !== 0,
    isCheckingDisabled: (flags & flag.checkingDisabled) !== 0,
    // The record's class is the size its sender takes, and its time to live holds the flags.
    ...(opt !== undefined && { edns: { udpBytes: opt.class, wantsSignatures: (opt.ttl & dnssecOk) !== 0 } }),
  };
  return { kind: "question", question };
}

/** Everything that an answer depends on, as text: two questions with the same key have the same answer. */
export function questionKey({ wire, edns, isCheckingDisabled }: DnsQuestion): string {
  const form = `${edns === undefined ? "-" : edns.wantsSignatures ? "s" : "e"}${isCheckingDisabled ? "c" : "-"}`;
  return form + lowerCase(wire.subarray(0, -4)).toString("latin1") + wire.toString("latin1", wire.length - 4);
}

/** The question alone, under an id of our own: nothing else that the asker wrote reaches a resolver. */
export function encodeQuestion({ wire, edns, isCheckingDisabled }: DnsQuestion, id: number, udpBytes: number): Buffer {
  const flags = flag.recursionDesired | (isCheckingDisabled ? flag.checkingDisabled : 0);
  const opt = Buffer.alloc(edns === undefined ? 0 : 11);
  if (edns !== undefined) {
    opt.writeUInt16BE(dnsType.opt, 1);
    opt.writeUInt16BE(udpBytes, 3);
    opt.writeUInt16BE(edns.wantsSignatures ? dnssecOk : 0, 7);
  }
  return Buffer.concat([head({ id, flags, additionals: edns === undefined ? 0 : 1 }), wire, opt]);
}

/** Whether a message answers this question under this id; anything else on a resolver's port is a forgery or late. */
export function isAnswerTo(message: Buffer, { wire }: DnsQuestion, id: number): boolean {
  if (message.length < headBytes + wire.length || message.readUInt16BE(0) !== id) return false;
  const flags = message.readUInt16BE(2);
  if ((flags & flag.response) === 0 || (flags & flag.opcode) !== 0 || message.readUInt16BE(4) !== 1) return false;
  const theirs = message.subarray(headBytes, headBytes + wire.length);
  const nameBytes = wire.length - 4;
  return (
    lowerCase(theirs.subarray(0, nameBytes)).equals(lowerCase(wire.subarray(0, nameBytes))) &&
    theirs.subarray(nameBytes).equals(wire.subarray(nameBytes))
  );
}

/** A copy of a resolver's answer for one asker: its id, its spelling of the name. */
export function answerFor({ id, wire, wantsRecursion }: DnsQuestion, answer: Buffer): Buffer {
  const copy = Buffer.from(answer);
  copy.writeUInt16BE(id, 0);
  const rest = copy.readUInt16BE(2) & ~flag.recursionDesired;
  copy.writeUInt16BE(rest | (wantsRecursion ? flag.recursionDesired : 0), 2);
  wire.copy(copy, headBytes);
  return copy;
}

/** An answer that has only a code. */
export function bareAnswer({ id, wire, wantsRecursion }: DnsQuestion, code: number): Buffer {
  const asked = wantsRecursion ? flag.recursionDesired : 0;
  return Buffer.concat([head({ id, flags: flag.response | flag.recursionAvailable | asked | code }), wire]);
}

/** The same for a query whose question could not be read. */
export function bareRefusal(id: number, code: number): Buffer {
  const bytes = head({ id, flags: flag.response | code });
  bytes.writeUInt16BE(0, 4);
  return bytes;
}

/** The head of an answer that does not fit, so that the asker comes back over TCP. */
export function truncatedAnswer(question: DnsQuestion): Buffer {
  const bytes = bareAnswer(question, rcode.noError);
  bytes.writeUInt16BE(bytes.readUInt16BE(2) | flag.truncated, 2);
  return bytes;
}

/** The answer code of a message that has a head. */
export function rcodeOf(message: Buffer): number {
  return message.readUInt16BE(2) & 0x0f;
}

/** Whether the sender left something out. */
export function isTruncated(message: Buffer): boolean {
  return (message.readUInt16BE(2) & flag.truncated) !== 0;
}

/** The records of a message behind its question; undefined where the message does not hold what its counts say. */
export function tryReadRecords(bytes: Buffer, from: number): DnsRecord[] | undefined {
  if (from > bytes.length) return undefined;
  const records: DnsRecord[] = [];
  let at = from;
  for (const [index, section] of (["answer", "authority", "additional"] as const).entries()) {
    for (let left = bytes.readUInt16BE(6 + 2 * index); left > 0; left--) {
      const nameEnd = anyNameEnd(bytes, at);
      if (nameEnd === undefined || nameEnd + 10 > bytes.length) return undefined;
      const dataAt = nameEnd + 10;
      const dataBytes = bytes.readUInt16BE(nameEnd + 8);
      at = dataAt + dataBytes;
      if (at > bytes.length) return undefined;
      const [type, recordClass] = [bytes.readUInt16BE(nameEnd), bytes.readUInt16BE(nameEnd + 2)];
      const [ttlAt, ttl] = [nameEnd + 4, bytes.readUInt32BE(nameEnd + 4)];
      records.push({ section, type, class: recordClass, ttl, ttlAt, dataAt, dataBytes });
    }
  }
  return records;
}

function head(fields: { readonly id: number; readonly flags: number; readonly additionals?: number }): Buffer {
  const bytes = Buffer.alloc(headBytes);
  bytes.writeUInt16BE(fields.id, 0);
  bytes.writeUInt16BE(fields.flags, 2);
  bytes.writeUInt16BE(1, 4);
  bytes.writeUInt16BE(fields.additionals ?? 0, 10);
  return bytes;
}

/** Where a name without pointers ends, with room for type and class behind it; a question has nothing to point to. */
function plainNameEnd(bytes: Buffer, from: number): number | undefined {
  let at = from;
  for (let length = bytes[at]; length !== 0; length = bytes[at]) {
    if (length === undefined || length > 63) return undefined;
    at += 1 + length;
    if (at - from >= nameBytesMax) return undefined;
  }
  return at + 5 <= bytes.length ? at + 1 : undefined;
}

/** Where a name ends that may end in a pointer, which is not followed. */
function anyNameEnd(bytes: Buffer, from: number): number | undefined {
  let at = from;
  while (at - from < nameBytesMax) {
    const length = bytes[at];
    if (length === undefined) return undefined;
    if (length === 0) return at + 1;
    if ((length & 0xc0) === 0xc0) return at + 2;
    if (length > 63) return undefined;
    at += 1 + length;
  }
  return undefined;
}

/** Only ASCII letters have a case in DNS; the length bytes of labels are below all of them. */
function lowerCase(name: Buffer): Buffer {
  const copy = Buffer.from(name);
  for (const [index, byte] of copy.entries()) if (byte >= 0x41 && byte <= 0x5a) copy[index] = byte + 0x20;
  return copy;
}

function textOfName(wire: Buffer): string {
  const name = lowerCase(wire.subarray(0, -4));
  const labels: string[] = [];
  for (let at = 0, length = name[0] ?? 0; length !== 0; at += 1 + length, length = name[at] ?? 0)
    labels.push(name.toString("latin1", at + 1, at + 1 + length));
  return labels.join(".");
}
