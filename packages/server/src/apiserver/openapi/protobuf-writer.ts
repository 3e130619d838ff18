/** Writes protobuf messages field by field; just the wire types that documents need. */
export class ProtobufWriter {
  readonly #parts: Uint8Array[] = [];

  /** A string field; anything that is no string, and the empty string, is left out. */
  string(field: number, value: unknown): this {
    if (typeof value === "string" && value !== "") this.#delimited(field, Buffer.from(value));
    return this;
  }

  /** A nested message. */
  message(field: number, writer: ProtobufWriter): this {
    this.#delimited(field, writer.finish());
    return this;
  }

  /** The bytes written so far. */
  finish(): Uint8Array {
    return Buffer.concat(this.#parts);
  }

  #delimited(field: number, bytes: Uint8Array): void {
    this.#parts.push(varint(field * 8 + 2), varint(bytes.byteLength), bytes);
  }
}

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 0x80) {
    bytes.push((rest % 0x80) + 0x80);
    rest = Math.floor(rest / 0x80);
  }
  bytes.push(rest);
  return Uint8Array.from(bytes);
}
