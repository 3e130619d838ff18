import { badRequest } from "@agent-sandbox/api";

/** Reads the fields of one protobuf message; throws BadRequest for bytes that are none. */
export class WireReader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** The next field, or undefined at the end. */
  next(): { readonly number: number; readonly value: bigint | Uint8Array } | undefined {
    if (this.#at >= this.#bytes.length) return undefined;
    const tag = this.#varint();
    const number = Number(tag >> 3n);
    switch (Number(tag & 7n)) {
      case 0:
        return { number, value: this.#varint() };
      case 1:
        return { number, value: this.#take(8) };
      case 2:
        return { number, value: this.#take(Number(this.#varint())) };
      case 5:
        return { number, value: this.#take(4) };
      default:
        throw malformed();
    }
  }

  #varint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined) throw malformed();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, value);
    }
    throw malformed();
  }

  #take(length: number): Uint8Array {
    if (!Number.isSafeInteger(length) || this.#at + length > this.#bytes.length) throw malformed();
    const part = this.#bytes.subarray(this.#at, this.#at + length);
    this.#at += length;
    return part;
  }
}

/** The refusal of bytes that are no protobuf. */
export function malformed(): Error {
  return badRequest("the object provided is unrecognized: unexpected EOF in a protobuf message");
}
