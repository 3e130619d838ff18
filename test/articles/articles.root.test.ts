import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ExampleEngine, type Outcome } from "../examples/engine.ts";
import { article, articleText, kubectlFor, type Printed } from "./kubectl.ts";
import { runPrintedPython } from "./printed-python.ts";
import { pythonImage } from "./python-image.ts";

let engine: ExampleEngine;
let work = "";
let kubectl: (words: string, input?: string) => Promise<Printed>;

beforeAll(async () => {
  work = await mkdtemp(path.join(os.tmpdir(), "agent-sandbox-articles-"));
  engine = await ExampleEngine.start();
  kubectl = kubectlFor(path.join(engine.dataDir, "pki/admin.kubeconfig"), work);
  const image = path.join(work, "python.tar");
  await writeFile(image, await pythonImage());
  expect(await cli("image", "load", image)).toMatchObject({ exitCode: 0 });
}, 180_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  await rm(work, { recursive: true, force: true });
}, 60_000);

function cli(...args: string[]): Promise<Outcome> {
  return engine.run(["agent-sandbox", ...args], { timeoutMs: 60_000 });
}

/** Runs kubectl, which must succeed. */
async function done(words: string, input?: string): Promise<string> {
  const { code, stdout, stderr } = await kubectl(words, input);
  expect(code, `kubectl ${words}: ${stderr}`).toBe(0);
  return stdout;
}

test("articles on one machine: the Sandbox of an interpreter becomes and stays Ready, under its own host name", async () => {
  await done(`apply -f ${article("sandbox.yaml")}`);
  await done("wait --for=condition=Ready sandbox/my-sandbox --timeout=60s");
  expect(await done("get sandbox my-sandbox")).toMatch(/^NAME.*\nmy-sandbox /);
  expect(await done("exec my-sandbox -- hostname")).toBe("my-sandbox\n");
  expect(await done("exec my-sandbox -- python --version")).toMatch(/^Python 3\.11/);
  expect(await done("describe sandbox my-sandbox")).toContain("SandboxReady");
  await done("logs my-sandbox");
  const restarts = "jsonpath={.status.containerStatuses[0].restartCount}/{.status.containerStatuses[0].ready}";
  expect(await done(`get pod my-sandbox -o ${restarts}`)).toBe("0/true");
  await done("delete sandbox my-sandbox");
  expect(await done("get sandbox")).toBe("");
  expect(await done("get pods -o name")).not.toContain("my-sandbox");
});

test("articles on one machine: the runtime class gvisor is there without being installed", async () => {
  const text = await articleText("gvisor.yaml", { "my-ai-agent:latest": "python:3.11" });
  await done("apply -f -", text);
  await done("wait --for=condition=Ready sandbox/ai-agent-sandbox --timeout=60s");
  expect(await done("exec ai-agent-sandbox -- dmesg")).toContain("gVisor");
  await done("delete sandbox ai-agent-sandbox");
});

test("articles on one machine: without Kata, condition and ls say which runtime class is missing", async () => {
  await done(`apply -f ${article("kata.yaml")}`);
  const message = 'jsonpath={.status.conditions[?(@.type=="Ready")].message}';
  await done(`wait --for=${message} sandbox/kata-ai-sandbox --timeout=30s`);
  expect(await done(`get sandbox kata-ai-sandbox -o ${message}`)).toContain("kata-qemu-nvidia-gpu");
  expect((await cli("ls")).stdout).toMatch(/^kata-ai-sandbox +failed /m);
  expect((await cli("ls", "-o", "wide")).stdout).toContain('RuntimeClass "kata-qemu-nvidia-gpu" does not exist');
  await done("delete sandbox kata-ai-sandbox");
});

test("articles on one machine: template and claim give a sandbox; after the pool, a claim takes a warm one", async () => {
  await done(`apply -f ${article("template-and-claim.yaml")}`);
  await done(`wait --for=condition=Ready -f ${article("template-and-claim.yaml")} --timeout=60s`);
  const sandboxOf = "jsonpath={.status.sandbox.name}";
  expect(await done(`get sandboxclaim my-claim -o ${sandboxOf}`)).toBe("my-claim");
  expect(await done("exec my-claim -- python -c print(6*7)")).toBe("42\n");
  const pool = await cli("apply", "-f", article("pool.yaml"));
  expect(pool).toMatchObject({ exitCode: 0, stdout: "sandboxwarmpools/python-agent applied\n" });
  expect(pool.stderr).toContain("SandboxWarmPool of agents.x-k8s.io/v1alpha1 is deprecated");
  await done("wait --for=jsonpath={.status.readyReplicas}=3 sandboxwarmpool/python-agent --timeout=60s");
  const next = await articleText("template-and-claim.yaml", { "my-claim": "next-claim" });
  await done("apply -f -", next);
  await done("wait --for=condition=Ready -f - --timeout=60s", next);
  expect(await done(`get sandboxclaim next-claim -o ${sandboxOf}`)).toMatch(/^python-agent-/);
  await done("delete -f -", next);
  expect(await cli("delete", "-f", article("pool.yaml"))).toMatchObject({ exitCode: 0 });
  await done(`delete --ignore-not-found -f ${article("template-and-claim.yaml")}`);
  await done("wait --for=delete sandbox --all --timeout=60s");
});

test("articles on one machine: pip installs agentic-sandbox-client, and its printed Python says Hello", async () => {
  const said = await runPrintedPython(work, engine.env);
  expect(said, said.stderr).toMatchObject({ exitCode: 0 });
  expect(said.stdout).toContain("Hello");
  expect(await done("get sandbox")).toBe("");
});
