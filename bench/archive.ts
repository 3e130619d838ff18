/**
 * A gibibyte into an archive in a directory and back, beside a synced `cp` of the same file and zstd alone:
 *
 *   node bench/archive.ts [--rounds=3]
 */
import { execFileSync } from "node:child_process";
import { createReadStream, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { constants, createZstdCompress } from "node:zlib";
import { DirectoryStore } from "../packages/server/src/node/archive/directory-store.ts";
import { NodeArchive } from "../packages/server/src/node/archive/node-archive.ts";
import { type SnapshotRecord, snapshotVolumeId } from "../packages/server/src/node/pods/snapshot-record.ts";
import { RecordStore } from "../packages/server/src/node/record-store.ts";
import { createLogger } from "../packages/server/src/telemetry/logger.ts";
import { archiveEntry, backUid, takenUid } from "../test/archive/entry.ts";
import { RealHost } from "../test/host/real-host.ts";
import { circumstances } from "./load/engine-calls.ts";
import { quantile } from "./load/samples.ts";

const rounds = Number(process.argv.find((word) => word.startsWith("--rounds="))?.split("=")[1] ?? 3);
const contents = {
  "random bytes": "head -c 1G /dev/urandom",
  "files of /usr": "while tar -cf - -C / usr 2>/dev/null; do :; done | head -c 1G",
} as const;
const figureNames = ["copy", "zstd", "archive", "recall"] as const;
type Figures = Record<(typeof figureNames)[number], number[]>;

const [taken, back] = [takenUid, backUid];
const entry = archiveEntry;
const { id } = entry;
const { signal } = new AbortController();

async function timed<T>(into: number[], work: () => T | Promise<T>): Promise<T> {
  const startMs = performance.now();
  const result = await work();
  into.push((performance.now() - startMs) / 1000);
  return result;
}

const volumeOf = (real: RealHost, name: string): string => path.join(real.hostDir, "volumes", `${name}.img`);

function recordOf(volume: string): SnapshotRecord {
  return {
    version: 1,
    uid: taken,
    namespace: "default",
    name: "of-box",
    state: "ready",
    hasMemory: false,
    images: [{ kind: "volume", from: "own", id: volume, part: { is: "claim", name: "home" } }],
    runs: {},
    ended: [],
  };
}

/** One round with one content; resolves with how much is stored. */
async function round(real: RealHost, store: string, figures: Figures): Promise<number> {
  const file = volumeOf(real, "still");
  await timed(figures.copy, () => execFileSync("sh", ["-c", 'cp "$1" "$1.copy" && sync "$1.copy"', "sh", file]));
  rmSync(`${file}.copy`);
  const compress = createZstdCompress({ params: { [constants.ZSTD_c_compressionLevel]: 1 } });
  const sink = new Writable({ write: (_bytes, _encoding, taken) => taken() });
  await timed(figures.zstd, () => pipeline(createReadStream(file, { highWaterMark: 1 << 20 }), compress, sink));
  const snapshots = new RecordStore<SnapshotRecord>(path.join(real.nodeDir, "snapshots"));
  await snapshots.save(recordOf("still"));
  const logger = createLogger({ component: "bench", level: "error" });
  const node = { host: real.host, snapshots, snapshotName: async () => "of-box", dataDir: real.nodeDir, logger };
  const archive = new NodeArchive(node, new DirectoryStore(store));
  const { storedBytes } = await timed(figures.archive, () => archive.store(entry, taken, signal));
  await timed(figures.recall, () => archive.fetch(id, back, signal));
  execFileSync("cmp", [file, volumeOf(real, snapshotVolumeId(back, "home"))]);
  await real.host.deleteVolume({ id: snapshotVolumeId(back, "home") });
  await snapshots.remove(back);
  await archive.remove(id, signal);
  return storedBytes;
}

const when = circumstances();
const real = await RealHost.open();
const store = mkdtempSync(path.join(os.tmpdir(), "archive-bench-"));
const rows: string[] = [];
try {
  for (const [name, command] of Object.entries(contents)) {
    execFileSync("sh", ["-c", `{ ${command}; } > "$1"; sync "$1"`, "sh", volumeOf(real, "still")], {
      stdio: ["ignore", "ignore", "ignore"],
    });
    const figures: Figures = { copy: [], zstd: [], archive: [], recall: [] };
    let storedBytes = 0;
    for (let turn = 0; turn < rounds; turn += 1) storedBytes = await round(real, store, figures);
    const medians = figureNames.map((each) => quantile(figures[each], 0.5).toFixed(1));
    rows.push(`| ${name} | ${medians.join(" | ")} | ${(storedBytes / 2 ** 20).toFixed(0)} |`);
  }
} finally {
  await real[Symbol.asyncDispose]();
  rmSync(store, { recursive: true, force: true });
}
const text = `# Archives

A volume of one gibibyte into an archive in a directory of the same disk and back by the node and the helper, beside a synced \`cp\` of the same file and zstd alone on one processor; medians of ${rounds} rounds, seconds; ${when}.
What an archive does beside: encryption, digests of every part, each part written to the disk before it leaves and read back after, and on the way back all of it synced before a file has its name.

| content | cp | zstd -1 | archive | recall | stored MiB |
|---|---|---|---|---|---|
${rows.join("\n")}

Made by \`npm run bench -- archive\`.
`;
process.stdout.write(text);
writeFileSync(path.join(import.meta.dirname, "results/archive.md"), text);
