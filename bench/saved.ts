/**
 * Saving a sandbox with its memory and restoring it by the helper's verbs, beside `runsc checkpoint` and `runsc restore` of the same sandbox:
 *
 *   node bench/saved.ts [--rounds=5]
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { sweepAll } from "../test/host/contract-case.ts";
import { RealHost } from "../test/host/real-host.ts";
import { guestOf, SavedBench } from "../test/host/saved-bench.ts";
import { guestProcess } from "../test/host/saved-guest.ts";
import { BareRunsc } from "./load/bare-runsc.ts";
import { circumstances } from "./load/engine-calls.ts";
import { quantile } from "./load/samples.ts";

const rounds = Number(process.argv.find((word) => word.startsWith("--rounds="))?.split("=")[1] ?? 5);
const sizesMiB = [16, 256, 1024];
const figureNames = [
  "bareSave",
  "save",
  "standstill",
  "bareRestore",
  "bareAnswer",
  "restore",
  "answer",
  "whole",
] as const;
type Figures = Record<(typeof figureNames)[number], number[]>;

async function timed<T>(into: number[], work: () => Promise<T>): Promise<T> {
  const startMs = performance.now();
  const result = await work();
  into.push(performance.now() - startMs);
  return result;
}

/** One round of one size. */
async function round(bench: SavedBench, sizeMiB: number, figures: Figures): Promise<void> {
  const { host } = bench.real;
  await bench.start("s0", sizeMiB);
  const { runtimeVersion } = (await host.listContainers())[0] ?? {};
  const bare = new BareRunsc(bench.real, runtimeVersion ?? "");
  await timed(figures.bareSave, () => bare.checkpoint("s0"));
  const saved = await timed(figures.save, () => host.saveSandbox({ id: "s0", saved: "state" }));
  figures.standstill.push(saved.standstillMs);
  await bench.removePod("s0");
  await bench.prepareSlot();
  await bench.prepareRoot("s0", "kept");
  await timed(figures.bareAnswer, async () => {
    await timed(figures.bareRestore, () => bare.restore());
    await bench.answer();
  });
  await bare.delete();
  await bench.prepareSlot();
  const request = guestOf("s0", { process: guestProcess(sizeMiB), restoreFrom: { saved: "state", container: "s0" } });
  await timed(figures.whole, async () => {
    await timed(figures.answer, async () => {
      await timed(figures.restore, () => host.runContainer(request));
      await bench.answer();
    });
    await host.waitRestored({ id: "s0", waitMs: 60_000 });
  });
  if ((await host.sweep({ ...sweepAll, network: true })).failed.length > 0) throw new Error("something is left");
}

const when = circumstances();
const real = await RealHost.open();
const rows: string[] = [];
try {
  const bench = new SavedBench(real);
  for (const sizeMiB of sizesMiB) {
    const figures = Object.fromEntries(figureNames.map((name) => [name, [] as number[]])) as Figures;
    for (let turn = 0; turn < rounds; turn += 1) await round(bench, sizeMiB, figures);
    rows.push(`| ${sizeMiB} | ${figureNames.map((name) => quantile(figures[name], 0.5).toFixed(0)).join(" | ")} |`);
  }
} finally {
  await real[Symbol.asyncDispose]();
}
const text = `# Saved sandboxes

A Python program with touched memory, saved and restored by the helper's verbs and by \`runsc\` alone; medians of ${rounds} rounds, milliseconds; ${when}. Both restores (\`--background\`) end when the guest goes on, and are followed by a question to a server in it;
\`all pages read\` is when \`waitRestored\` says so. What the verbs do beside \`runsc\`: sync of the guest's file systems and of the state, checksums of all of it at the save and, while the sandbox loads, before its guest goes on, and records. \`runsc\` is our
build, which reads pages with half of the processors ([ADR 55](../../docs/adr/0055-a-saved-state-is-whole-or-absent.md)).

| MiB | runsc checkpoint | saveSandbox | standstill | runsc restore | its first answer | runContainer from it | its first answer | all pages read |
|---|---|---|---|---|---|---|---|---|
${rows.join("\n")}

Made by \`npm run bench -- saved\`.
`;
process.stdout.write(text);
writeFileSync(path.join(import.meta.dirname, "results/saved.md"), text);
