import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { silentLogger } from "../telemetry/logger.ts";
import { ensurePodCidr } from "./pod-network.ts";

test("ensurePodCidr: keeps its choice, and makes another where the record of it is torn", async () => {
  const dataDir = await mkdtemp(path.join(os.tmpdir(), "network-"));
  try {
    const file = path.join(dataDir, "network.json");
    const chosen = await ensurePodCidr(dataDir, silentLogger());
    expect(await ensurePodCidr(dataDir, silentLogger())).toBe(chosen);
    for (const text of ["", '{"pod', "null", '{"podCidr":"0.0.0.0/0"}']) {
      await writeFile(file, text);
      expect(await ensurePodCidr(dataDir, silentLogger())).toBe(chosen);
      expect(JSON.parse(await readFile(file, "utf8"))).toEqual({ podCidr: chosen });
    }
    expect((await readdir(path.join(dataDir, "bad"))).length).toBeGreaterThan(0);
  } finally {
    await rm(dataDir, { recursive: true, force: true });
  }
});
