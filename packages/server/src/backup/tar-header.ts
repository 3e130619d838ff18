/** The unit of a tar archive. */
export const blockBytes = 512;

/** One file of an archive. Archives of ours have no other entries, so a header is read by making it again and comparing all of its bytes. */
export interface TarFile {
  readonly name: string;
  /** Bytes in the archive. */
  readonly sizeBytes: number;
  readonly modifiedS: number;
  /** For a file with holes in GNU tar's sparse format 1.0: how large it is with them. */
  readonly realBytes?: number;
}

const nameBytesMax = 100;
/** Octal digits of a size; beyond it a size is written in base 256, as every tar reads it. */
const octalSizeMax = 8 ** 11;
const paxName = "pax";

/** The blocks in front of a file's content. A name of at most 100 bytes is assumed; a longer one is a bug of the caller. */
export function encodeHeader({ name, sizeBytes, modifiedS, realBytes }: TarFile): Buffer {
  if (Buffer.byteLength(name) > nameBytesMax) throw new Error(`bug: ${name} is too long a name`);
  const plain = ustar({ name, sizeBytes, modifiedS, type: "0" });
  if (realBytes === undefined) return plain;
  const records = [
    ["GNU.sparse.major", "1"],
    ["GNU.sparse.minor", "0"],
    ["GNU.sparse.name", name],
    ["GNU.sparse.realsize", String(realBytes)],
  ].map(([key = "", value = ""]) => paxRecord(key, value));
  const content = Buffer.from(records.join(""));
  const extended = ustar({ name: paxName, sizeBytes: content.length, modifiedS, type: "x" });
  return Buffer.concat([extended, content, paddingOf(content.length), plain]);
}

/** What fills the last block of a file's content. */
export function paddingOf(sizeBytes: number): Buffer {
  return Buffer.alloc((blockBytes - (sizeBytes % blockBytes)) % blockBytes);
}

/** A record names its own length. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return `${length}${rest}`;
}

interface Ustar {
  readonly name: string;
  readonly sizeBytes: number;
  readonly modifiedS: number;
  readonly type: "0" | "x";
}

const fields = {
  name: 0,
  mode: 100,
  uid: 108,
  gid: 116,
  size: 124,
  modified: 136,
  checksum: 148,
  type: 156,
  magic: 257,
};
const checksumBytes = 8;

function ustar({ name, sizeBytes, modifiedS, type }: Ustar): Buffer {
  const block = Buffer.alloc(blockBytes);
  block.write(name, fields.name);
  // Keys are among the files: what an operator unpacks by hand is for its owner alone.
  block.write("0000600\0", fields.mode);
  block.write("0000000\0", fields.uid);
  block.write("0000000\0", fields.gid);
  if (sizeBytes < octalSizeMax) block.write(octal(sizeBytes, 11), fields.size);
  else {
    block.writeUInt8(0x80, fields.size);
    block.writeBigUInt64BE(BigInt(sizeBytes), fields.size + 4);
  }
  block.write(octal(modifiedS, 11), fields.modified);
  block.write(" ".repeat(checksumBytes), fields.checksum);
  block.write(type, fields.type);
  block.write("ustar\x0000", fields.magic);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${octal(sum, 6)}\0 `, fields.checksum);
  return block;
}

const octal = (value: number, digits: number): string => value.toString(8).padStart(digits, "0");

/** What a block says, unless it is the two empty ones' first; the caller compares it with what `encodeHeader` makes of it. */
export function readUstar(block: Buffer): (Omit<TarFile, "realBytes"> & { readonly type: string }) | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  const text = (from: number, length: number): string =>
    block.toString("utf8", from, from + length).replace(/\0.*$/s, "");
  const sizeBytes =
    block.readUInt8(fields.size) === 0x80
      ? Number(block.readBigUInt64BE(fields.size + 4))
      : Number.parseInt(text(fields.size, 12), 8);
  return {
    name: text(fields.name, nameBytesMax),
    sizeBytes,
    modifiedS: Number.parseInt(text(fields.modified, 12), 8),
    type: text(fields.type, 1),
  };
}

/** The value of a record in the content of an extended header. */
export function paxValue(content: string, key: string): string | undefined {
  return content
    .split("\n")
    .find((line) => line.replace(/^\d+ /, "").startsWith(`${key}=`))
    ?.replace(/^\d+ [^=]*=/, "");
}
