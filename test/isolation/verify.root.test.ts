import { execFile, spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { type SandboxTemplate, sandboxTemplates } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Finding } from "../../packages/cli/src/verify/probe.ts";
import { probes } from "../../packages/cli/src/verify/probes/probes.ts";
import type { Report } from "../../packages/cli/src/verify/report.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { roleProcess } from "../node/engine-processes.ts";
import { processTable } from "../node/footprint.ts";
import { RealEngine, until } from "../node/real-engine.ts";

let engine: RealEngine;

const node = [process.execPath, "--disable-warning=ExperimentalWarning"];
/** `AGENT_SANDBOX_TEST_FULL=1` runs it as a user of a cluster would, too. */
const isFull = process.env["AGENT_SANDBOX_TEST_FULL"] === "1";
const ids = probes.map(({ id }) => id);

beforeAll(async () => {
  // The marks of the machine are in /tmp. Nothing but the weakened run asks for it.
  engine = await RealEngine.open("--allow-host-path", "/tmp");
});

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
});

function verifyArgv(...flags: readonly string[]): string[] {
  return [...node, path.join(rootDir, "packages/cli/src/main.ts"), "verify", "--data-dir", engine.dataDir, ...flags];
}

/** What a run of verify may have left: rules, links, namespaces of either kind, files, processes. */
async function remains(): Promise<string[]> {
  const lines = (...argv: string[]): string[] => engine.place.must(...argv).split("\n");
  const spaces = (await engine.kubectl("get", "namespaces", "-o", "name")).split("\n");
  return [
    ...lines("ip", "rule").filter((line) => line.includes("7190")),
    ...lines("ip", "-6", "rule").filter((line) => line.includes("7190")),
    ...lines("ip", "route", "show", "table", "all").filter((line) => line.includes("7190")),
    ...lines("ip", "-o", "link").filter((line) => line.includes("as-verify")),
    ...lines("sh", "-c", "ls /run/netns 2>/dev/null; true").filter((line) => line.includes("as-verify")),
    ...readdirSync("/tmp").filter((name) => name.startsWith("verify-")),
    ...processTable()
      .map(({ command }) => command)
      .filter((command) => /sandbox-probe.hold.verify-/.test(command)),
    ...spaces.filter((name) => name.includes("verify-")),
  ];
}

/** Namespaces go in the background. */
async function expectNothingLeft(): Promise<void> {
  await expect.poll(remains, { timeout: 30_000 }).toEqual([]);
}

test("invariant probes-leave-nothing: everything holds on an engine as it is, every control works, and nothing is left", async () => {
  const { status, stdout, stderr } = engine.place.run(verifyArgv("-o", "json"), { timeoutMs: 110_000 });
  expect([status, stderr]).toEqual([0, ""]);
  const report = JSON.parse(stdout) as Report;
  const wrong = report.findings.filter(({ result, control }) => result !== "held" || control !== "worked");
  expect(wrong).toEqual([]);
  expect(report.findings.map(({ id }) => id)).toEqual(ids);
  expect(report.sound).toBe(true);
  expect(report.durationMs).toBeLessThan(120_000);
  expect(report.versions.runtimes["runsc"]).toMatch(/\d{8}/);
  console.log(`verify took ${report.durationMs} ms`);
  await expectNothingLeft();
});

test("verify: every probe finds what it looks for in a weakened engine or where there are no walls", async () => {
  await engine.client.create(sandboxTemplates, openTemplate);
  const script = path.join(rootDir, "test/isolation/weakened-verify.ts");
  const argv = [...node, script, engine.dataDir, "open", String(roleProcess(engine, "node"))];
  const { status, stdout, stderr } = engine.place.run(argv, { timeoutMs: 110_000 });
  expect([status, stderr]).toEqual([0, ""]);
  const { opened, bare } = JSON.parse(stdout) as { opened: Finding[]; bare: Finding[] };
  const broken = new Set([...opened, ...bare].filter(({ result }) => result === "broken").map(({ id }) => id));
  const missed = [...opened, ...bare].filter(({ id }) => !broken.has(id));
  expect(missed.map(({ id, attempts }) => ({ id, attempts }))).toEqual([]);
  expect(ids.filter((id) => !broken.has(id))).toEqual([]);
  expect([...opened, ...bare].filter(({ control }) => control !== "worked")).toEqual([]);
  // What a flood takes of the disk and what it does to a neighbour are two attempts, and each of them must be able to fail.
  const flood = bare.find(({ id }) => id === "limits/logs");
  expect(flood?.attempts.map(({ through, detail }) => [through, detail])).toEqual([
    [true, expect.stringContaining("the engine's disk grew by")],
    [true, expect.stringContaining("reading the neighbour's log")],
  ]);
  await expectNothingLeft();
});

/** Its Pods have a directory of the machine, more than they should be able to, and a credential. */
const openTemplate: SandboxTemplate = {
  apiVersion: "extensions.agents.x-k8s.io/v1beta1",
  kind: "SandboxTemplate",
  metadata: { name: "open", namespace: "default" },
  spec: {
    podTemplate: {
      spec: {
        automountServiceAccountToken: true,
        volumes: [{ name: "machine", hostPath: { path: "/tmp" } }],
        containers: [
          {
            name: "main",
            image: "host.agent-sandbox.local/usr",
            volumeMounts: [{ name: "machine", mountPath: "/machine" }],
            securityContext: { capabilities: { add: ["SYS_ADMIN"] } },
          },
        ],
      },
    },
  },
};

test("verify: interrupted half-way, it removes what it made and says so by its exit code", async () => {
  const [program, args] = engine.place.inside(...verifyArgv());
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  const [output, ended] = [text(child.stdout), new Promise((resolve) => child.once("exit", resolve))];
  await until(async () => (await remains()).some((line) => line.includes("lookup 7190")), 60_000);
  child.kill("SIGINT");
  expect([await ended, await output]).toEqual([130, ""]);
  await expectNothingLeft();
});

test.each(isFull ? ["kubeconfig"] : [])(
  "verify: with nothing but a %s it tries what a Pod can safely try, and says why not the rest",
  async () => {
    const main = path.join(rootDir, "packages/cli/src/main.ts");
    const argv = [...node.slice(1), main, "verify", "--kubeconfig", engine.kubeconfig, "-o", "json"];
    const { stdout } = await promisify(execFile)(process.execPath, argv, { maxBuffer: 2 ** 24 });
    const { findings, sound } = JSON.parse(stdout) as Report;
    expect(sound).toBe(true);
    const untried = findings.filter(({ result }) => result === "not-applicable");
    expect(untried.filter(({ detail }) => detail === "")).toEqual([]);
    const areas = new Set(findings.filter((one) => !untried.includes(one)).map(({ id }) => id.split("/")[0]));
    expect([...areas]).toEqual(["escape", "kernel", "host", "neighbours", "limits", "admission"]);
    await expectNothingLeft();
  },
);
