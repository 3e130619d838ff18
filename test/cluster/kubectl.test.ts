import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { httpTransport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiCall } from "../conformance/api-call.ts";
import { type EmbeddedTarget, openEmbeddedTarget } from "../conformance/embedded-target.ts";
import { installFixtures } from "../conformance/fixtures.ts";
import { type Cluster, openCluster } from "./cluster.ts";
import { type Command, commands, manifests } from "./kubectl-script.ts";
import { type ProgramName, programPath } from "./programs.ts";

/** What a command printed and how it ended. */
interface Outcome {
  readonly code: number | null;
  readonly output: string;
}

/** Runs commands with one kubectl against one server, in a home of its own so that nothing is cached between servers. */
class Shell {
  readonly #env: NodeJS.ProcessEnv;
  readonly #dir: string;

  constructor(program: ProgramName, kubeconfig: string, dir: string) {
    this.#dir = dir;
    const home = path.join(dir, `home-${program}-${path.basename(path.dirname(kubeconfig))}`);
    this.#env = {
      PATH: process.env["PATH"],
      HOME: home,
      KUBECONFIG: kubeconfig,
      KUBECTL: programPath(program),
      LC_ALL: "C",
    };
  }

  async run({ run, compare = "all" }: Command): Promise<Outcome> {
    const script = run.replaceAll(/(^|[\s;&|'])k (?=[a-z])/g, '$1"$KUBECTL" ').replaceAll("@dir", this.#dir);
    const { code, output } = await execute("/bin/sh", ["-c", script], this.#env);
    if (compare === "code") return { code, output: "" };
    const text = masked(output);
    return { code, output: compare === "sorted" ? text.split("\n").sort().join("\n") : text };
  }
}

/** Not the synchronous form: our server is in this process and must answer meanwhile. */
function execute(file: string, args: readonly string[], env?: NodeJS.ProcessEnv): Promise<Outcome> {
  return new Promise((resolve) => {
    const options = { encoding: "utf8" as const, timeout: 30_000, ...(env !== undefined && { env }) };
    execFile(file, args, options, (error, stdout, stderr) => {
      const code = typeof error?.code === "number" ? error.code : error === null ? 0 : null;
      resolve({ code, output: `${stdout}${stderr}` });
    });
  });
}

/** Replaces what differs from run to run. */
function masked(text: string): string {
  return text
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "<uid>")
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "<time>")
    .replaceAll(/(resourceVersion: )"\d+"/g, '$1"<version>"')
    .replaceAll(/(Resource Version: +)\d+/g, "$1<version>")
    .replaceAll(/\b(\d+[smh])+\b/g, "<age>")
    .replaceAll(/kubectl-edit-\d+/g, "kubectl-edit")
    .replaceAll(/https:\/\/127\.0\.0\.1:\d+/g, "<server>")
    .replaceAll(/agent-sandbox-(cluster|embedded|kubectl)-\w+/g, "<dir>")
    .replaceAll(/ +$/gm, "")
    .replaceAll(/ {2,}/g, "  ");
}

/** Ours gives a Sandbox its address while it is admitted; a cluster's network does that later. */
function withoutAddress(text: string): string {
  return text
    .replaceAll(/^ *Annotations: +agent-sandbox\.dev\/address: [\d.]+$/gm, "Annotations:  <none>")
    .replaceAll(/^ *(agent-sandbox\.dev\/address): [\d.]+\n/gm, "");
}

/** The kubeconfig of one kubectl, in a namespace of its own so that it finds nothing of the other's. */
function kubeconfigOf(kubeconfig: string, version: ProgramName): string {
  return `${kubeconfig}.${version}`;
}

async function openNamespace(kubeconfig: string, version: ProgramName): Promise<void> {
  const text = (await readFile(kubeconfig, "utf8")).replace(/"?namespace"?: "?default"?/, `namespace: ${version}`);
  await writeFile(kubeconfigOf(kubeconfig, version), text, { mode: 0o600 });
  const made = await execute(programPath("kubectl"), ["--kubeconfig", kubeconfig, "create", "namespace", version]);
  if (made.code !== 0) throw new Error(made.output);
}

const versions: readonly ProgramName[] = ["kubectl", "kubectl-old"];
let dir = "";
let cluster: Cluster | undefined;
let embedded: EmbeddedTarget | undefined;

beforeAll(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), "agent-sandbox-kubectl-"));
  for (const [name, text] of Object.entries(manifests)) await writeFile(path.join(dir, name), text);
  [cluster, embedded] = await Promise.all([openCluster(), openEmbeddedTarget()]);
  for (const version of versions) {
    for (const target of [cluster, embedded]) await openNamespace(target.kubeconfig, version);
  }
  for (const [target, ownKinds] of [
    [cluster, "install"],
    [embedded, "present"],
  ] as const) {
    const transport = httpTransport(target.admin, { protocol: "http1" });
    await installFixtures(new ApiCall(transport), ownKinds);
    await transport.close();
  }
}, 180_000);
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  await embedded?.[Symbol.asyncDispose]();
  await rm(dir, { recursive: true, force: true });
}, 60_000);

test("cluster: a real API server accepts our CustomResourceDefinitions", async () => {
  const crds = path.resolve(import.meta.dirname, "../../spec/crds");
  const { kubeconfig = "" } = cluster ?? {};
  const files = (await readdir(crds)).filter((file) => file.endsWith(".yaml"));
  const args = ["--kubeconfig", kubeconfig, "apply", "--server-side", "--force-conflicts", "--dry-run=server"];
  const outcome = await execute(programPath("kubectl"), [
    ...args,
    ...files.flatMap((file) => ["-f", path.join(crds, file)]),
  ]);
  expect(outcome.code, outcome.output).toBe(0);
});

for (const version of versions) {
  describe(`${version} says the same of both servers`, () => {
    for (const each of commands) {
      test(`${version}: ${each.title}`, { timeout: 120_000 }, async () => {
        const [real, ours] = await Promise.all([
          new Shell(version, kubeconfigOf(cluster?.kubeconfig ?? "", version), dir).run(each),
          new Shell(version, kubeconfigOf(embedded?.kubeconfig ?? "", version), dir).run(each),
        ]);
        expect(`${withoutAddress(ours.output)}exit ${ours.code}`).toBe(`${real.output}exit ${real.code}`);
      });
    }
  });
}
