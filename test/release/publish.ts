// Publishes every .tgz of a directory to the registry at an address, as `npm publish` does without its checks of who publishes:
//   node publish.ts DIRECTORY URL
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { extract } from "tar-stream";

interface Manifest {
  readonly name: string;
  readonly version: string;
}

async function manifestOf(archive: Buffer): Promise<Manifest> {
  const entries = extract();
  entries.end(gunzipSync(archive));
  for await (const entry of entries) {
    const chunks: Buffer[] = [];
    for await (const chunk of entry) chunks.push(chunk as Buffer);
    if (entry.header.name === "package/package.json")
      return JSON.parse(Buffer.concat(chunks).toString("utf8")) as Manifest;
  }
  throw new Error("the archive has no package/package.json");
}

/** The registry ends a connection that is not used for five seconds, and unpacking the next archive can take longer: none is used again. */
const alone = { connection: "close" };

async function publish(archive: Buffer, url: string): Promise<void> {
  const manifest = await manifestOf(archive);
  const { name, version } = manifest;
  const file = `${name}-${version}.tgz`;
  const digest = (algorithm: string, encoding: "hex" | "base64"): string =>
    createHash(algorithm).update(archive).digest(encoding);
  const dist = {
    tarball: `${url}/${name}/-/${file}`,
    shasum: digest("sha1", "hex"),
    integrity: `sha512-${digest("sha512", "base64")}`,
  };
  const attachment = {
    content_type: "application/octet-stream",
    data: archive.toString("base64"),
    length: archive.length,
  };
  const response = await fetch(`${url}/${name.replace("/", "%2f")}`, {
    method: "PUT",
    headers: { ...alone, "content-type": "application/json" },
    body: JSON.stringify({
      _id: name,
      name,
      "dist-tags": { latest: version },
      versions: { [version]: { ...manifest, _id: `${name}@${version}`, dist } },
      _attachments: { [file]: attachment },
    }),
  });
  if (!response.ok) throw new Error(`${name}: ${response.status} ${await response.text()}`);
}

/** A registry takes seconds to start on busy processors. */
async function awaitAnswer(url: string): Promise<void> {
  const giveUpMs = performance.now() + 120_000;
  for (;;) {
    const answer = await fetch(`${url}/-/ping`, { headers: alone }).catch(() => undefined);
    if (answer?.ok === true) return;
    if (performance.now() > giveUpMs) throw new Error(`${url} does not answer`);
    await pause(100);
  }
}

const [directory = "", url = ""] = process.argv.slice(2);
await awaitAnswer(url);
for (const name of readdirSync(directory).filter((file) => file.endsWith(".tgz")))
  await publish(readFileSync(path.join(directory, name)), url);
