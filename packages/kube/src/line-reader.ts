/** Longer than any object a server stores (etcd takes 1.5 MB, ours 3 MiB); beyond it the stream is not a watch. */
const lineBytesMax = 16 * 1024 * 1024;

/** Cuts a byte stream into its lines, empty ones left out. Bound: one line of 16 MiB. */
export async function* readLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  let parts: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of chunks) {
    let from = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, from)) {
      parts.push(chunk.subarray(from, end));
      from = end + 1;
      const line = decode(parts);
      parts = [];
      length = 0;
      if (line !== "") yield line;
    }
    if (from === chunk.length) continue;
    parts.push(chunk.subarray(from));
    length += chunk.length - from;
    if (length > lineBytesMax) throw new Error(`line exceeds ${lineBytesMax} bytes`);
  }
  const rest = decode(parts);
  if (rest !== "") yield rest;
}

function decode(parts: readonly Uint8Array[]): string {
  const [first = new Uint8Array()] = parts;
  const bytes = parts.length > 1 ? Buffer.concat(parts) : Buffer.from(first.buffer, first.byteOffset, first.byteLength);
  return bytes.toString("utf8").trim();
}
