import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";

const blockBytes = 512;

/** One entry of a tar archive, written by hand so that it can be as wrong as a test wants. */
export function tarEntry(entry: {
  readonly name: string;
  readonly content?: string;
  /** `0` file, `1` hard link, `2` symbolic link, `3` character device, `4` block device, `5` directory. */
  readonly type?: string;
  readonly linkName?: string;
}): Buffer {
  const content = Buffer.from(entry.content ?? "");
  const header = Buffer.alloc(blockBytes);
  header.write(entry.name, 0, 100);
  header.write("0000644\0", 100);
  header.write("0000000\0", 108);
  header.write("0000000\0", 116);
  header.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("00000000000\0", 136);
  header.write("        ", 148);
  header.write(entry.type ?? "0", 156);
  header.write(entry.linkName ?? "", 157, 100);
  header.write("ustar\0", 257);
  header.write("00", 263);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc((blockBytes - (content.length % blockBytes)) % blockBytes);
  return Buffer.concat([header, content, padding]);
}

/** A whole archive. */
export function tarOf(...entries: readonly Buffer[]): Buffer {
  return Buffer.concat([...entries, Buffer.alloc(2 * blockBytes)]);
}

/** A layer as a registry holds it. */
export function gzipLayer(tar: Buffer): { readonly blob: Buffer; readonly digest: string; readonly diffId: string } {
  const blob = gzipSync(tar);
  return { blob, digest: digestOf(blob), diffId: digestOf(tar) };
}

/** `sha256:<hex>` of some bytes. */
export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
