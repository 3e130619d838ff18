import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { goEnvironment, readSetup, rootDir } from "../../scripts/checkout.ts";
import { PublishedEngine } from "./published-engine.ts";

const work = mkdtempSync(path.join(tmpdir(), "go-sdk-"));
const program = path.join(work, "gosdk.test");
let published: PublishedEngine;

beforeAll(async () => {
  // The flags with which set-up builds kubectl, so that both share compiled packages.
  const flags = ["test", "-c", "-trimpath", "-ldflags=-s -w", "-o", program, "./gosdk"];
  const options = { cwd: path.join(rootDir, "test/cluster"), env: goEnvironment({ CGO_ENABLED: "0" }) };
  execFileSync(readSetup().go, flags, { ...options, stdio: "inherit" });
  published = await PublishedEngine.open({ isAged: false });
}, 600_000);

afterAll(async () => {
  await published[Symbol.asyncDispose]();
  rmSync(work, { recursive: true });
});

/** Runs one Go test inside the engine's namespace; resolves with its end and what it said. */
async function replay(name: string): Promise<{ code: number | null; output: string }> {
  const { engine, environment, options } = published;
  const [command, args] = engine.place.inside(program, "-test.v", "-test.timeout=100s", `-test.run=^${name}$`);
  const settings = { POOL: "pool", API_URL: String(options["apiUrl"]), GATEWAY: String(options["gateway"]) };
  const child = spawn(command, args, { env: { ...process.env, ...environment, ...settings } });
  const [stdout, stderr] = [text(child.stdout), text(child.stderr)];
  const [code] = (await once(child, "close")) as [number | null];
  return { code, output: (await stdout) + (await stderr) };
}

const calls = {
  TestClaimLifecycle: "claims are made with generated names, resolved, watched, listed and deleted",
  TestClaimDeletedWhileWaiting: "a claim deleted meanwhile is told",
  TestDirect: "commands and files by the direct URL",
  TestGatewayAddress: "commands and files by a Gateway",
  TestRouterTunnel: "commands and files by SPDY to the router's Pod, twice",
  TestDaemonTunnel: "files and Execute by SPDY to the sandbox's Pod",
  TestTunnelToNobody: "a port without a listener is told on the error stream",
};

test.each(Object.entries(calls))("published Go SDK's calls: %s, %s", async (name) => {
  const { code, output } = await replay(name);
  expect(output).toContain(`--- PASS: ${name}`);
  expect(code).toBe(0);
});

test("published Go SDK's calls: every replay there is has been asked for", () => {
  const listed = execFileSync(program, ["-test.list=."], { encoding: "utf8" });
  expect(listed.trim().split("\n").toSorted()).toEqual(Object.keys(calls).toSorted());
});
