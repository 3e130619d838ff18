import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import { pack } from "tar-stream";
import { afterAll, expect, test } from "vitest";
import { InstallPlace } from "./install-place.ts";
import { ensureReadableDirectory } from "./readable-directory.ts";
import { readReleaseFile } from "./release-file.ts";

const top = mkdtempSync(path.join(tmpdir(), "release-file-"));
afterAll(() => rmSync(top, { recursive: true, force: true }));

/** A release with nothing in its files; only `lib` has an entry of its own among its directories. */
async function writeRelease(): Promise<string> {
  const name = `agent-sandbox-9.8.7-linux-${process.arch}`;
  const record = { version: "9.8.7", arch: process.arch, storeFormat: 1, programs: {} };
  const entries = pack();
  entries.entry({ name: `${name}/lib`, type: "directory", mode: 0o700 });
  for (const file of ["bin/agent-sandbox", "lib/node"]) entries.entry({ name: `${name}/${file}`, mode: 0o700 }, "");
  entries.entry({ name: `${name}/lib/app/main.js`, mode: 0o600 }, "");
  entries.entry({ name: `${name}/release.json`, mode: 0o6644 }, JSON.stringify(record));
  entries.finalize();
  const file = path.join(top, `${name}.tar.gz`);
  writeFileSync(file, gzipSync(await buffer(entries)));
  return file;
}

test("readReleaseFile: the roles' users can read what root unpacked, whatever its umask", async () => {
  const file = await writeRelease();
  const place = new InstallPlace(path.join(top, "prefix"));
  const before = process.umask(0o077);
  let dir: string;
  try {
    // As `ensure` does, which also refuses a place that is not root's, such as this one where the tests do not run as root.
    ensureReadableDirectory(path.join(place.prefix, "versions"));
    dir = place.makePartial();
    await readReleaseFile(file, dir);
  } finally {
    process.umask(before);
  }
  const modeOf = (name: string): string => (statSync(path.join(dir, name)).mode & 0o7777).toString(8);
  for (const name of ["../..", "..", ".", "bin", "lib", "lib/app", "bin/agent-sandbox", "lib/node"])
    expect([name, modeOf(name)]).toEqual([name, "755"]);
  for (const name of ["lib/app/main.js", "release.json"]) expect([name, modeOf(name)]).toEqual([name, "644"]);
});
