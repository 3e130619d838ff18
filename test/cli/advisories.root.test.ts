import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Advisory, knownBad } from "../../packages/server/src/main/advisories.ts";
import { rootDir } from "../../scripts/checkout.ts";
import type { Finished } from "../node/namespace.ts";
import { RealEngine } from "../node/real-engine.ts";

/** One that every runtime has which could be pinned today. */
const madeUp: Advisory = {
  id: "CVE-2999-0001",
  component: "runsc",
  fixed: ["29991231"],
  summary: "a weakness that a test made up",
  source: "a test",
};

let engine: RealEngine;
const work = mkdtempSync("/var/tmp/as-advisories-");

beforeAll(async () => {
  engine = await RealEngine.open();
}, 120_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  rmSync(work, { recursive: true });
}, 120_000);

interface Warning {
  readonly level: string;
  readonly msg: string;
  readonly advisory?: string;
  readonly component?: string;
  readonly version?: string;
}

/** What the starts of the engine warned of, each time one line per advisory. */
function warnings(): Warning[] {
  return engine
    .log("supervisor")
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as Warning)
    .filter(({ advisory }) => advisory !== undefined);
}

/** `doctor` on this engine, as `-o json` or as people see it. */
function doctor(...flags: readonly string[]): Finished {
  const main = path.join(rootDir, "packages/cli/src/main.ts");
  const node = [process.execPath, "--disable-warning=ExperimentalWarning", main];
  return engine.place.run([...node, "doctor", "--data-dir", engine.dataDir, ...flags], { timeoutMs: 110_000 });
}

function findingOf(title: string): { readonly verdict: string; readonly detail: string; readonly advice?: string } {
  const findings = JSON.parse(doctor("-o", "json").stdout) as { title: string; verdict: string; detail: string }[];
  const found = findings.find((finding) => finding.title === title);
  if (found === undefined) throw new Error(`doctor has no check ${title}`);
  return found;
}

/** The version of gVisor that runsc is built from. */
function pinnedRunsc(): string {
  const pins = readFileSync(path.join(rootDir, "native/runsc/go.mod"), "utf8");
  return /gvisor\.dev\/gvisor (v\S+)/.exec(pins)?.[1] ?? "";
}

/** Puts something else in the place of a file, for this engine's processes alone. */
function cover(file: string, text: string, mode = 0o644): void {
  const cover = path.join(work, path.basename(file));
  writeFileSync(cover, text, { mode });
  engine.place.must("mount", "--bind", cover, file);
}

test("advisories: the runtime as it is has none, so neither the start of the engine nor doctor names one", () => {
  expect(warnings()).toEqual([]);
  expect(findingOf("gVisor (runsc)")).toMatchObject({
    verdict: "ok",
    detail: `runsc ${pinnedRunsc()}, as pinned; no known advisory`,
  });
});

test("advisories: a runtime with one is named by a warning at each start, and by doctor, which ends with a failure", () => {
  cover(path.join(rootDir, "spec/advisories.json"), JSON.stringify([madeUp]));
  engine.cli("down");
  engine.up();
  expect(warnings()).toEqual([
    expect.objectContaining({
      level: "warn",
      advisory: madeUp.id,
      component: "runsc",
      version: expect.stringMatching(/20\d{6}/) as string,
      msg: `the runtime has a known weakness: ${madeUp.summary}`,
    }),
  ]);
  const { status, stdout } = doctor();
  expect(status).toBe(1);
  expect(stdout).toMatch(
    /^broken +gVisor \(runsc\) .* has CVE-2999-0001\n +Update agent-sandbox: it brings its runtime\.$/m,
  );
  engine.place.must("umount", path.join(rootDir, "spec/advisories.json"));
});

test("advisories: a runc of the distribution with one is a warning of doctor, since the trusted tier is optional", () => {
  engine.place.must("mount", "-t", "tmpfs", "tmpfs", "/usr/local/sbin");
  engine.place.must("touch", "/usr/local/sbin/runc");
  cover("/usr/local/sbin/runc", `#!/bin/sh\necho "runc version ${knownBad["runc"]}"\n`, 0o755);
  expect(findingOf("runc, the trusted tier")).toMatchObject({
    verdict: "warning",
    detail: expect.stringMatching(/^runc version 1\.1\.11 has .*CVE-2024-21626/) as string,
    advice: expect.stringContaining("Update the package runc") as string,
  });
});
