// A zip archive whose bytes depend on its entries alone: no times, no modes, no owners, entries in the order given.
import { crc32, deflateRawSync } from "node:zlib";

/** A file of an archive, by its path inside it. */
export interface ZipEntry {
  readonly path: string;
  readonly data: Uint8Array;
}

// Deflate, names in UTF-8 (flag bit 11), and the version of the format that has both.
const deflated = 8;
const utf8Names = 0x0800;
const formatVersion = 20;

/** The bytes of an archive. Preconditions: fewer than 65 536 entries, together less than 4 GiB. */
export function zipOf(entries: readonly ZipEntry[]): Buffer {
  const bodies: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const entry of entries) {
    const name = Buffer.from(entry.path, "utf8");
    const body = deflateRawSync(entry.data, { level: 9 });
    const fields = { name, body, entry, offset };
    const local = Buffer.concat([localHeader(fields), name, body]);
    bodies.push(local);
    directory.push(Buffer.concat([directoryHeader(fields), name]));
    offset += local.length;
  }
  const listing = Buffer.concat(directory);
  return Buffer.concat([...bodies, listing, endRecord(entries.length, listing.length, offset)]);
}

interface Fields {
  readonly name: Buffer;
  readonly body: Buffer;
  readonly entry: ZipEntry;
  readonly offset: number;
}

function localHeader(fields: Fields): Buffer {
  const header = Buffer.alloc(30);
  header.writeUInt32LE(0x04034b50, 0);
  writeShared(header, 4, fields);
  return header;
}

function directoryHeader(fields: Fields): Buffer {
  const header = Buffer.alloc(46);
  header.writeUInt32LE(0x02014b50, 0);
  header.writeUInt16LE(formatVersion, 4);
  writeShared(header, 6, fields);
  header.writeUInt32LE(fields.offset, 42);
  return header;
}

/** What both headers have, from the version that a reader needs to the length of the name; the time stays zero. */
function writeShared(header: Buffer, at: number, { name, body, entry }: Fields): void {
  header.writeUInt16LE(formatVersion, at);
  header.writeUInt16LE(utf8Names, at + 2);
  header.writeUInt16LE(deflated, at + 4);
  header.writeUInt32LE(crc32(entry.data), at + 10);
  header.writeUInt32LE(body.length, at + 14);
  header.writeUInt32LE(entry.data.length, at + 18);
  header.writeUInt16LE(name.length, at + 22);
}

function endRecord(count: number, sizeBytes: number, offset: number): Buffer {
  const record = Buffer.alloc(22);
  record.writeUInt32LE(0x06054b50, 0);
  record.writeUInt16LE(count, 8);
  record.writeUInt16LE(count, 10);
  record.writeUInt32LE(sizeBytes, 12);
  record.writeUInt32LE(offset, 16);
  return record;
}
