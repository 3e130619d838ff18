import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { silentLogger } from "../telemetry/logger.ts";
import { ensurePodCidr } from "./pod-network.ts";

interface Machine extends AsyncDisposable {
  readonly dir: string;
  readonly options: Parameters<typeof ensurePodCidr>[1];
}

/** A directory that the engines of one machine share, and room for their data. */
async function machine(engines: readonly string[]): Promise<Machine & { readonly dataDirs: readonly string[] }> {
  const dir = await mkdtemp(path.join(os.tmpdir(), "network-"));
  const options = { logger: silentLogger(), sharedDir: dir };
  const dataDirs = await Promise.all(engines.map((name) => mkdtemp(path.join(dir, `${name}-`))));
  return { dir, dataDirs, options, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) };
}

test("ensurePodCidr: keeps its choice, and makes another where the record of it is torn", async () => {
  await using place = await machine(["a"]);
  const [dataDir = ""] = place.dataDirs;
  const file = path.join(dataDir, "network.json");
  const chosen = await ensurePodCidr(dataDir, place.options);
  expect(await ensurePodCidr(dataDir, place.options)).toBe(chosen);
  for (const text of ["", '{"pod', "null", '{"podCidr":"0.0.0.0/0"}']) {
    await writeFile(file, text);
    // Not the same one where another engine of this machine came or went meanwhile.
    const again = await ensurePodCidr(dataDir, place.options);
    expect(again).toMatch(/^10\.2\d\d\.0\.0\/16$/);
    expect(JSON.parse(await readFile(file, "utf8"))).toEqual({ podCidr: again });
  }
  expect((await readdir(path.join(dataDir, "bad"))).length).toBeGreaterThan(0);
});

test("ensurePodCidr: engines that start one after the other before either has a route get networks of their own", async () => {
  await using place = await machine(["a", "b", "c"]);
  const chosen: string[] = [];
  for (const dataDir of place.dataDirs) chosen.push(await ensurePodCidr(dataDir, place.options));
  expect(new Set(chosen).size).toBe(3);
});

test("ensurePodCidr: the network of a purged engine is free again", async () => {
  await using place = await machine(["a", "b"]);
  const [a = "", b = ""] = place.dataDirs;
  const options = { ...place.options, used: () => new Set<string>() };
  const chosen = await ensurePodCidr(a, options);
  await rm(a, { recursive: true });
  expect(await ensurePodCidr(b, options)).toBe(chosen);
});

test("ensurePodCidr: a kept network that a running engine of another directory has is refused, and taken where that one has ended", async () => {
  await using place = await machine(["a", "b"]);
  const [a = "", b = ""] = place.dataDirs;
  const chosen = await ensurePodCidr(a, place.options);
  await writeFile(path.join(b, "network.json"), JSON.stringify({ podCidr: chosen }));
  const used = (): ReadonlySet<string> => new Set([chosen.split(".").slice(0, 2).join(".")]);
  const refused = ensurePodCidr(b, { ...place.options, used });
  await expect(refused).rejects.toThrow(`which the engine of ${a} uses; stop that one first`);
  expect(await ensurePodCidr(b, place.options)).toBe(chosen);
});
