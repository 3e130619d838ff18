import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { isSandboxError, Sandbox, SandboxError } from "@agent-sandbox/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeArchive, makeImage } from "../../packages/server/src/node/images/testing/test-image.ts";
import { readDevDir } from "../../scripts/checkout.ts";
import { kubectlPath } from "../node/real-engine.ts";
import { CliWorld } from "./engine.ts";

let world: CliWorld;
let scratch: string;

/** Programs of the images, all of them one; an interpreter, like a shell, reads its program from standard input. */
const applets = ["sh", "python3", "true", "false", "cat", "sleep"];

const entrypoints: Readonly<Record<string, readonly string[]>> = {
  shell: ["/bin/sh"],
  interpreter: ["/bin/python3"],
  done: ["/bin/true"],
  broken: ["/bin/sh", "-c", "echo first; echo no such setting >&2; exit 3"],
};

/** A Sandbox that names an image and nothing else, as the shortest manifest does. */
function manifest(name: string, image: string, container: object = {}): object {
  const podTemplate = { spec: { containers: [{ name: "main", image: `${image}:1`, ...container }] } };
  return { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata: { name }, spec: { podTemplate } };
}

async function apply(...objects: readonly object[]): Promise<void> {
  const file = path.join(scratch, "boxes.yaml");
  await writeFile(file, objects.map((object) => JSON.stringify(object)).join("\n---\n"));
  expect(await world.run(["apply", "-f", file])).toMatchObject({ code: 0 });
}

function state(name: string): Promise<string | undefined> {
  return world.run(["get", "sandbox", name]).then(({ stdout }) => stdout.split("\n")[1]?.split(/\s+/)[1]);
}

beforeAll(async () => {
  world = await CliWorld.create();
  scratch = await mkdtemp(path.join(tmpdir(), "entrypoint-"));
  expect(await world.run(["run", "--", "true"])).toMatchObject({ code: 0 });
  const busybox = readFileSync(path.join(readDevDir("servers"), "bin/busybox"));
  // The applet is chosen by the name; the interpreter is the shell under another.
  const files = Object.fromEntries(applets.map((name) => [`bin/${name}`, { link: "/bin/busybox" }]));
  const interpreter = { "bin/python3": `#!/bin/sh\nexec /bin/sh\n` };
  for (const [name, Entrypoint] of Object.entries(entrypoints)) {
    const image = await makeImage([{ "bin/busybox": busybox, ...files, ...interpreter }], { Entrypoint });
    const file = path.join(scratch, `${name}.tar`);
    await writeFile(file, await makeArchive(`${name}:1`, image));
    expect(await world.run(["image", "load", file])).toMatchObject({ code: 0 });
  }
  const once = { stdin: true, stdinOnce: true };
  await apply(
    ...Object.keys(entrypoints).map((name) => manifest(name, name)),
    manifest("closed", "shell", { stdin: false }),
    manifest("once", "shell", once),
  );
});

afterAll(async () => {
  await world.purge();
  await rm(scratch, { recursive: true });
});

test.each(["shell", "interpreter"])(
  "entrypoint: an image whose program is a %s stays, and takes commands",
  async (name) => {
    await expect.poll(() => state(name), { timeout: 20_000 }).toBe("ready");
    expect(await world.run(["exec", name, "--", "/bin/sh", "-c", "echo in"])).toMatchObject({
      code: 0,
      stdout: "in\n",
    });
    const { stdout } = await world.run(["get", "pods", name, "-o", "json"]);
    expect(stdout).toContain('"stdin": true');
    // It has not been started again since.
    expect(JSON.parse(stdout)).toMatchObject({ status: { containerStatuses: [{ restartCount: 0 }] } });
  },
);

test.each([
  ["done", 0, "it printed nothing"],
  ["broken", 3, "no such setting"],
  ["closed", 0, "it printed nothing"],
])("entrypoint: what ends again and again says so everywhere: %s", async (name, exitCode, words) => {
  await expect.poll(() => state(name), { timeout: 30_000, interval: 300 }).toBe("crash-loop");
  const { stdout } = await world.run(["describe", "sandbox", name]);
  expect(stdout).toMatch(/CrashLoop +True +CrashLoopBackOff/);
  expect(stdout).toMatch(/Warning +CrashLoop +Sandbox/);
  expect(stdout).toContain(`ended with exit code ${exitCode} at `);
  expect(stdout).toContain(words);
  expect(stdout).toContain('for example command: ["sleep", "infinity"]');
});

test("entrypoint: a command for a crash loop fails at once, with an error of its own", async () => {
  await expect.poll(() => state("broken"), { timeout: 30_000, interval: 300 }).toBe("crash-loop");
  await using box = await Sandbox.get("broken", { engine: { dataDir: world.dataDir } });
  const startMs = performance.now();
  const error = await box.run("true").catch((thrown: unknown) => thrown);
  // Between two restarts its program runs for a moment, and so may the command be lost with it.
  const isTold = isSandboxError(error, "crash-loop") && error.message.includes("exit code 3");
  expect(isTold || (error instanceof SandboxError && error.code === "process-ended"), String(error)).toBe(true);
  expect(performance.now() - startMs).toBeLessThan(5_000);
});

/** What a session of `kubectl attach -i` shows after a line; the session is cut off behind it. */
async function attached(name: string, line: string, wanted: string): Promise<void> {
  await expect.poll(() => state(name), { timeout: 30_000 }).toBe("ready");
  const kubeconfig = path.join(world.dataDir, "pki/admin.kubeconfig");
  const child = spawn(kubectlPath(), ["--kubeconfig", kubeconfig, "attach", "-i", name]);
  let shown = "";
  child.stdout.on("data", (chunk: Buffer) => {
    shown += chunk.toString();
  });
  const repeating = setInterval(() => child.stdin.write(line), 300);
  try {
    await expect.poll(() => shown, { timeout: 20_000 }).toContain(wanted);
  } finally {
    clearInterval(repeating);
    child.kill("SIGKILL");
  }
}

test("entrypoint: attach writes to the waiting shell again and again, and with stdinOnce once", async () => {
  await attached("shell", "echo $((40 + 2))\n", "42\n");
  await attached("shell", "echo $((40 + 3))\n", "43\n");
  await attached("once", "echo $((40 + 4))\n", "44\n");
  const restarts = async (name: string): Promise<number> => {
    const { stdout } = await world.run(["get", "pods", name, "-o", "json"]);
    const { status } = JSON.parse(stdout) as { status: { containerStatuses: { restartCount: number }[] } };
    return status.containerStatuses[0]?.restartCount ?? -1;
  };
  await expect.poll(() => restarts("once"), { timeout: 20_000 }).toBeGreaterThan(0);
  expect(await restarts("shell")).toBe(0);
});

test("run -d: without a command it leaves a sandbox that waits for commands; with one its output is in the log", async () => {
  const { code, stdout } = await world.run(["run", "-d", "--image", "interpreter:1"]);
  expect(code).toBe(0);
  const name = stdout.trim();
  expect(await world.run(["exec", name, "--", "/bin/sh", "-c", "echo in"])).toMatchObject({ stdout: "in\n" });
  const script = "echo ticks; while :; do sleep 1; done";
  expect(await world.run(["run", "-d", "--name", name, "--", "/bin/sh", "-c", script])).toMatchObject({ code: 0 });
  await expect.poll(async () => (await world.run(["logs", name])).stdout).toMatch(/^\[sh-[0-9a-f]{8}\] ticks\n$/);
  const id = /-([0-9a-f]{8})\]/.exec((await world.run(["logs", name])).stdout)?.[1] ?? "";
  expect((await world.run(["logs", name, "--process", id])).stdout).toBe(`[sh-${id}] ticks\n`);
  expect((await world.run(["logs", name, "--process", "entrypoint"])).stdout).toBe("");
  expect(await world.run(["run", "--service", "web"])).toMatchObject({ code: 2 });
});

test("run --service: describe shows it, and service rm ends it", async () => {
  const args = ["--name", "served", "--image", "shell:1", "--service", "web", "-w", "/bin"];
  const script = "pwd; echo $A; exec sleep 1000";
  expect(await world.run(["run", ...args, "-e", "A=b", "--", "/bin/sh", "-c", script])).toMatchObject({ code: 0 });
  await expect.poll(async () => (await world.run(["logs", "served"])).stdout).toBe("[web] /bin\n[web] b\n");
  expect((await world.run(["describe", "sandbox", "served"])).stdout).toContain(
    `Services\n  web: /bin/sh -c ${script}\n`,
  );
  expect(await world.run(["service", "rm", "served", "web"])).toMatchObject({ code: 0 });
  expect((await world.run(["service", "ls", "served"])).stdout.trim()).toBe("NAME   COMMAND");
});
