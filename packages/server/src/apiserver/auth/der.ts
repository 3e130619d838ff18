/** The few shapes of DER (X.690) that a certificate needs. Encoding only: parsing is left to `node:crypto`. */

/** One tagged value with its definite length. */
function tagged(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag]), lengthOf(body.length), body]);
}

function lengthOf(size: number): Buffer {
  if (size < 0x80) return Buffer.from([size]);
  const hex = size.toString(16);
  const bytes = Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, "hex");
  return Buffer.concat([Buffer.from([0x80 | bytes.length]), bytes]);
}

/** SEQUENCE of parts in order. */
export function sequence(...parts: readonly Uint8Array[]): Buffer {
  return tagged(0x30, ...parts);
}

/** SET with one member, the only kind that names use. */
export function setOf(part: Uint8Array): Buffer {
  return tagged(0x31, part);
}

/** INTEGER from big-endian bytes; a leading zero keeps it positive. */
export function integer(bytes: Uint8Array): Buffer {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start++;
  const trimmed = bytes.subarray(start);
  const needsZero = ((trimmed[0] ?? 0) & 0x80) !== 0;
  return tagged(0x02, needsZero ? Buffer.from([0]) : Buffer.alloc(0), trimmed);
}

/** BOOLEAN true; false is expressed by leaving the field out. */
export const booleanTrue: Buffer = tagged(0x01, Buffer.from([0xff]));

/** OBJECT IDENTIFIER from its dotted form. */
export function objectIdentifier(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  return tagged(0x06, Buffer.from([first * 40 + second, ...rest.flatMap(base128)]));
}

function base128(arc: number): number[] {
  const bytes = [arc & 0x7f];
  for (let left = arc >>> 7; left > 0; left >>>= 7) bytes.unshift((left & 0x7f) | 0x80);
  return bytes;
}

/** UTF8String. */
export function utf8String(text: string): Buffer {
  return tagged(0x0c, Buffer.from(text, "utf8"));
}

/** OCTET STRING. */
export function octetString(bytes: Uint8Array): Buffer {
  return tagged(0x04, bytes);
}

/** BIT STRING of whole bytes, or with unused bits at the end. */
export function bitString(bytes: Uint8Array, unusedBits = 0): Buffer {
  return tagged(0x03, Buffer.from([unusedBits]), bytes);
}

/** GeneralizedTime to the second. */
function generalizedTime(atMs: number): Buffer {
  const text = new Date(atMs).toISOString().replace(/\.\d+/, "").replaceAll(/[-:T]/g, "");
  return tagged(0x18, Buffer.from(text, "latin1"));
}

/** UTCTime up to 2049 and GeneralizedTime after it, as RFC 5280 demands. */
export function certificateTime(atMs: number): Buffer {
  if (new Date(atMs).getUTCFullYear() >= 2050) return generalizedTime(atMs);
  const text = new Date(atMs).toISOString().replace(/\.\d+/, "").replaceAll(/[-:T]/g, "");
  return tagged(0x17, Buffer.from(text.slice(2), "latin1"));
}

/** Context-specific tag, constructed: the value is wrapped. */
export function explicit(number: number, part: Uint8Array): Buffer {
  return tagged(0xa0 | number, part);
}

/** Context-specific tag, primitive: the value's own tag is replaced. */
export function implicit(number: number, bytes: Uint8Array): Buffer {
  return tagged(0x80 | number, bytes);
}
