import { joined } from "./data-plane.ts";

/**
 * Protobuf's binary form for the few messages that carry output, where JSON with base64 costs several times the bytes' own
 * price. A message type is a table from field numbers to names; values are those of the message's JSON form, except that
 * `bytes` are a Uint8Array and 64-bit numbers may be plain ones.
 */
export type MessageType = Readonly<Record<number, Field>>;

/** One field: its name in JSON and how it travels. `list` is a repeated string; `map` has strings on both sides. */
export type Field = readonly [name: string, kind: ScalarKind] | readonly [name: string, kind: MessageType];

/** How a field travels. */
export type ScalarKind = "string" | "bytes" | "number" | "bool" | "list" | "map" | "duration" | "timestamp";

type Message = Record<string, unknown>;

const wireVarint = 0;
const wireBytes = 2;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Makes the binary form; fields that the type does not know are a mistake of the caller and throw. */
export function encodeMessage(type: MessageType, message: object): Uint8Array {
  const parts: Uint8Array[] = [];
  const numbers = new Map(Object.entries(type).map(([number, [name]]) => [name, Number(number)]));
  for (const [name, value] of Object.entries(message)) {
    if (value === undefined) continue;
    const number = numbers.get(name) ?? 0;
    const field = type[number];
    if (field === undefined) throw new Error(`bug: no field ${name}`);
    for (const part of encodeField(number, field[1], value)) parts.push(part);
  }
  return joined(parts);
}

function encodeField(number: number, kind: ScalarKind | MessageType, value: unknown): Uint8Array[] {
  if (typeof kind === "object") return [delimited(number, encodeMessage(kind, value as object))];
  switch (kind) {
    case "number":
    case "bool":
      return [varint(number * 8 + wireVarint), varint(Number(value))];
    case "string":
      return [delimited(number, encoder.encode(value as string))];
    case "bytes":
      return [delimited(number, value as Uint8Array)];
    case "list":
      return (value as readonly string[]).map((item) => delimited(number, encoder.encode(item)));
    case "map":
      return Object.entries(value as Record<string, string>).map((entry) =>
        delimited(number, encodeMessage(mapEntry, { key: entry[0], value: entry[1] })),
      );
    case "duration":
      return [delimited(number, encodeMessage(secondsAndNanos, splitSeconds(Number.parseFloat(value as string))))];
    case "timestamp":
      return [delimited(number, encodeMessage(secondsAndNanos, splitSeconds(Date.parse(value as string) / 1000)))];
  }
}

const mapEntry: MessageType = { 1: ["key", "string"], 2: ["value", "string"] };
const secondsAndNanos: MessageType = { 1: ["seconds", "number"], 2: ["nanos", "number"] };

function splitSeconds(time: number): { seconds: number; nanos: number } {
  const seconds = Math.floor(time);
  return { seconds, nanos: Math.round((time - seconds) * 1e9) };
}

function delimited(number: number, body: Uint8Array): Uint8Array {
  return joined([varint(number * 8 + wireBytes), varint(body.length), body]);
}

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Uint8Array.from([...bytes, rest]);
    bytes.push((rest % 128) + 128);
  }
}

/** Thrown for bytes that are no message. */
export class ProtobufError extends Error {
  override readonly name = "ProtobufError";
}

/** Reads the binary form. Unknown fields are passed over; `bytes` point into the input. */
export function decodeMessage<T extends object>(type: MessageType, input: Uint8Array): T {
  const message: Message = {};
  const reader = new Reader(input);
  while (!reader.isAtEnd) {
    const tag = reader.varint();
    const field = type[Math.floor(tag / 8)];
    const wire = tag % 8;
    if (wire === wireVarint) {
      const value = reader.varint();
      if (field !== undefined) message[field[0]] = field[1] === "bool" ? value !== 0 : value;
    } else if (wire === wireBytes) {
      const body = reader.bytes(reader.varint());
      if (field !== undefined) message[field[0]] = decodeValue(field[1], body, message[field[0]]);
    } else reader.pass(wire);
  }
  return message as T;
}

function decodeValue(kind: ScalarKind | MessageType, body: Uint8Array, earlier: unknown): unknown {
  if (typeof kind === "object") return decodeMessage(kind, body);
  switch (kind) {
    case "bytes":
      return body;
    case "string":
      return decoder.decode(body);
    case "list":
      return [...((earlier as string[] | undefined) ?? []), decoder.decode(body)];
    case "map": {
      const { key = "", value = "" } = decodeMessage<{ key?: string; value?: string }>(mapEntry, body);
      return { ...(earlier as Record<string, string> | undefined), [key]: value };
    }
    case "duration":
      return `${seconds(body)}s`;
    case "timestamp":
      return timestampOf(seconds(body));
    case "number":
    case "bool":
      throw new ProtobufError("a number travels as bytes");
  }
}

/** The last moment that a Date can tell of, in seconds; a daemon may send any number. */
const timeSecondsMax = 8.64e12;

function timestampOf(time: number): string {
  if (Math.abs(time) > timeSecondsMax) throw new ProtobufError(`${time} seconds is not a time`);
  return new Date(time * 1000).toISOString();
}

function seconds(body: Uint8Array): number {
  const parts = decodeMessage<{ seconds?: number; nanos?: number }>(secondsAndNanos, body);
  return (parts.seconds ?? 0) + (parts.nanos ?? 0) / 1e9;
}

/** The lengths of the kinds that none of our fields has. */
const fixedBytes: Readonly<Record<number, number>> = { 1: 8, 5: 4 };

class Reader {
  readonly #input: Uint8Array;
  #at = 0;

  constructor(input: Uint8Array) {
    this.#input = input;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#input.length;
  }

  /** Exact up to 2^53; no offset and no number of ours is larger. */
  varint(): number {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#input[this.#at];
      if (byte === undefined) throw new ProtobufError("the message ends inside a number");
      this.#at += 1;
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }

  bytes(length: number): Uint8Array {
    const end = this.#at + length;
    if (end > this.#input.length) throw new ProtobufError("the message ends inside a field");
    const body = this.#input.subarray(this.#at, end);
    this.#at = end;
    return body;
  }

  pass(wire: number): void {
    const length = fixedBytes[wire];
    if (length === undefined) throw new ProtobufError(`no such kind of field: ${wire}`);
    this.bytes(length);
  }
}
