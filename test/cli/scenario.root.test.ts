import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Sandbox } from "@agent-sandbox/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { run } from "../examples/engine.ts";
import { CliWorld } from "./engine.ts";

let world: CliWorld;
let scratch: string;

beforeAll(async () => {
  world = await CliWorld.create();
  scratch = await mkdtemp(path.join(tmpdir(), "cli-scratch-"));
});

afterAll(async () => {
  await world.purge();
  await rm(scratch, { recursive: true });
});

test("cli run: starts the engine where none runs, prints the output and leaves no sandbox", async () => {
  expect(await world.run(["status"])).toMatchObject({ code: 4 });
  expect(await world.run(["run", "--", "echo", "hello"])).toEqual({ code: 0, stdout: "hello\n", stderr: "" });
  expect(await world.run(["status"])).toMatchObject({ code: 0 });
  expect((await world.run(["ls", "-o", "name"])).stdout).toBe("");
});

test("cli run: passes on exit code, signal death, streams and a missing command", async () => {
  expect(await world.run(["run", "--name", "dev", "--", "sh", "-c", "echo out; echo err >&2; exit 7"])).toEqual({
    code: 7,
    stdout: "out\n",
    stderr: "err\n",
  });
  expect((await world.run(["exec", "dev", "--", "sh", "-c", "kill -9 $$"])).code).toBe(137);
  expect((await world.run(["exec", "dev", "--", "no-such-command"])).code).toBe(127);
});

test("cli exec: a pipe becomes standard input and its end closes it", async () => {
  const text = "0123456789abcdef\n".repeat(100_000);
  const { code, stdout } = await world.run(["exec", "dev", "--", "wc", "-c"], text);
  expect([code, stdout.trim()]).toEqual([0, String(text.length)]);
});

test("cli exec: an interrupt reaches the command, and its code comes back", async () => {
  const child = world.start([
    "exec",
    "dev",
    "--",
    "sh",
    "-c",
    "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done",
  ]);
  let output = "";
  child.stdout?.on("data", (chunk: Buffer) => {
    output += chunk.toString("utf8");
    if (output === "ready\n") child.kill("SIGINT");
  });
  const [code] = (await once(child, "close")) as [number | null];
  expect([output, code]).toEqual(["ready\ncaught\n", 9]);
});

test("cli on a terminal: what a sandbox wrote and what its objects say cannot drive it; -t and --raw pass it on", async () => {
  const title = "\x1b]0;mine\x07";
  const container = {
    name: "main",
    image: "host.agent-sandbox.local/usr",
    command: ["sh", "-c", `printf '${title}\\n'; sleep infinity`],
  };
  const metadata = { name: "loud", annotations: { note: `${title}\u202e` } };
  const spec = { podTemplate: { spec: { containers: [container] } } };
  const file = path.join(scratch, "loud.json");
  await writeFile(file, JSON.stringify({ apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata, spec }));
  expect(await world.run(["apply", "-f", file])).toMatchObject({ code: 0 });
  await expect.poll(async () => (await world.run(["logs", "loud"])).stdout, { timeout: 30_000 }).toBe(`${title}\n`);
  expect(await world.onTerminal(["logs", "loud"])).toBe("␛]0;mine␇\r\n");
  expect(await world.onTerminal(["logs", "--raw", "loud"])).toBe(`${title}\r\n`);
  const print = ["--", "printf", title];
  expect(await world.onTerminal(["exec", "loud", ...print])).toBe("␛]0;mine␇");
  expect(await world.onTerminal(["exec", "-t", "loud", ...print])).toContain(title);
  for (const look of [
    ["describe", "sandbox", "loud"],
    ["get", "sandbox", "loud", "-o", "yaml"],
  ])
    expect(await world.onTerminal(look)).not.toMatch(/(?![\r\n\t])[\p{Cc}\p{Bidi_Control}]/u);
  await world.run(["delete", "sandbox", "loud"]);
});

test("cli cp: a directory goes in and comes out as it was", async () => {
  const local = await mkdtemp(path.join(scratch, "cp-"));
  await writeFile(path.join(local, "a.bin"), Buffer.from([0, 255, 10, 13]));
  expect(await world.run(["cp", local, "dev:/root/in"])).toMatchObject({ code: 0 });
  expect(await world.run(["cp", "dev:/root/in/a.bin", path.join(local, "b.bin")])).toMatchObject({ code: 0 });
  expect([...(await readFile(path.join(local, "b.bin")))]).toEqual([0, 255, 10, 13]);
});

test("cli suspend: what was written stays, and a command wakes the sandbox", async () => {
  await world.run(["exec", "dev", "--", "sh", "-c", "echo kept > /root/kept"]);
  expect(await world.run(["suspend", "dev"])).toMatchObject({ code: 0, stdout: "sandboxes/dev suspended\n" });
  expect((await world.run(["ls"])).stdout).toContain("suspended");
  expect(await world.run(["exec", "dev", "--", "cat", "/root/kept"])).toMatchObject({ code: 0, stdout: "kept\n" });
});

test("cli: mistakes get one readable line and a code", async () => {
  const wrong = await world.run(["exec", "dve", "--", "ls"]);
  expect(wrong).toMatchObject({ code: 3 });
  expect(wrong.stderr).toContain("no such sandbox 'dve' in namespace 'default'; did you mean 'dev'?");
  const pool = await world.run(["run", "--pool", "nowhere", "--", "ls"]);
  expect(pool).toMatchObject({ code: 125 });
  expect(pool.stderr).toContain('SandboxWarmPool "nowhere" not found');
  const slow = await world.run(["exec", "--command-timeout", "300ms", "dev", "--", "sleep", "60"]);
  expect(slow).toMatchObject({ code: 137 });
  expect(await world.run(["rnu"])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("did you mean 'run'?") as string,
  });
});

test("cli apply: the template and the pool that articles print become a pool that can be claimed at once", async () => {
  const file = path.join(scratch, "pool.yaml");
  const template =
    "{spec: {containers: [{name: main, image: host.agent-sandbox.local/usr, command: [sleep, infinity]}]}}";
  await writeFile(
    file,
    `{apiVersion: agents.x-k8s.io/v1alpha1, kind: SandboxTemplate, metadata: {name: py}, spec: {template: ${template}}}
---
{apiVersion: agents.x-k8s.io/v1alpha1, kind: SandboxWarmPool, spec: {size: 1, template: py}}
`,
  );
  expect(await world.run(["apply", "-f", file])).toMatchObject({
    code: 0,
    stdout: "sandboxtemplates/py applied\nsandboxwarmpools/py applied\n",
  });
  expect(await world.run(["run", "--pool", "py", "--", "echo", "warm"])).toMatchObject({ code: 0, stdout: "warm\n" });
  expect(await world.run(["pool", "rm", "py"])).toMatchObject({ code: 0 });
});

test("completion: names of sandboxes are offered where a verb takes one", async () => {
  const { stdout: script } = await world.run(["completion", "bash"]);
  const file = path.join(scratch, "completion");
  await writeFile(file, script);
  const call = `source ${file}; COMP_WORDS=(agent-sandbox exec d); COMP_CWORD=2; _agent_sandbox; echo "\${COMPREPLY[@]}"`;
  const env = { ...process.env, AGENT_SANDBOX_DATA_DIR: world.dataDir, PATH: `${rootDir}:${process.env["PATH"]}` };
  expect(await run(["bash", "--norc", "-c", call], { env, timeoutMs: 60_000 })).toMatchObject({ stdout: "dev\n" });
});

test("sdk on the engine: the README's three lines, files, reattachment and a signed link", async () => {
  const engine = { dataDir: world.dataDir };
  await using box = await Sandbox.create({ engine });
  expect((await box.run("echo hello from $(uname -s)")).stdout).toBe("hello from Linux\n");
  await box.files.write("/root/a/b.txt", "text");
  expect(await box.files.readText("/root/a/b.txt")).toBe("text");
  const server = await box.spawn(["python3", "-m", "http.server", "8000", "--directory", "/root/a"]);
  const found = await (await Sandbox.from(box.toJSON(), { engine })).attach(server.id);
  await expect.poll(async () => (await box.fetch(8000, "/b.txt")).status, { timeout: 20_000 }).toBe(200);
  const page = await fetch(await box.url(8000), { redirect: "manual" });
  expect([page.status, await page.text()]).toEqual([200, expect.stringContaining("b.txt")]);
  await server.signal("SIGTERM");
  expect(await found.exited).toMatchObject({ exitCode: 143, signal: "SIGTERM" });
});

test("sdk on the engine: the API server's tunnel carries commands where no router is known", async () => {
  const { connectEngine } = await import("@agent-sandbox/sdk/engine/connect-engine");
  const kubeconfig = path.join(world.dataDir, "pki/admin.kubeconfig");
  const engine = await connectEngine({ kubeconfig });
  expect(engine.routerUrl).toBeUndefined();
  const dev = await Sandbox.get("dev", { engine });
  expect((await dev.run(["cat"], { stdin: "through the tunnel" })).stdout).toBe("through the tunnel");
  await dev.close();
  await engine.close();
});

test("sdk on the engine: a sandbox without the daemon runs commands through pods/exec", async () => {
  const engine = { dataDir: world.dataDir };
  const podTemplate = { metadata: { annotations: { "agent-sandbox.dev/sandboxd": "disabled" } } };
  await using box = await Sandbox.create({ engine, command: ["sleep", "infinity"], podTemplate });
  const script = "cat; echo $A; pwd; echo err >&2; exit 3";
  const result = await box.run(script, { stdin: "in\n", env: { A: "x y" }, cwd: "/usr" });
  expect(result).toMatchObject({ exitCode: 3, stdout: "in\nx y\n/usr\n", stderr: "err\n" });
  await expect(box.run("sleep 60", { commandTimeoutMs: 300 })).rejects.toMatchObject({ code: "command-timeout" });
  const abort = new AbortController();
  setTimeout(() => abort.abort(new Error("enough")), 300);
  await expect(box.run("sleep 60", { signal: abort.signal })).rejects.toThrow("enough");
  await expect(box.run(["sleep", "7272"], { signal: AbortSignal.timeout(1) })).rejects.toThrow("timeout");
  expect((await box.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout).not.toContain("sleep 7272 ");
  await expect(box.files.read("/etc/passwd")).rejects.toMatchObject({ code: "unsupported" });
});

test("sdk on the engine: a long stream arrives whole, and a timeout takes the whole tree", async () => {
  const dev = await Sandbox.get("dev", { engine: { dataDir: world.dataDir } });
  const { stdoutBytes } = await dev.run(["head", "-c", "30000000", "/dev/zero"]);
  expect(stdoutBytes.length).toBe(30_000_000);
  const tree = "(setsid sleep 4242 &) ; sleep 4242";
  await expect(dev.run(tree, { commandTimeoutMs: 500 })).rejects.toMatchObject({ code: "command-timeout" });
  expect((await dev.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout).not.toContain("sleep 4242");
  await dev.close();
});

test("cli doctor: says that no engine runs, and with --fix starts one and boots a sandbox in it", async () => {
  expect(await world.run(["down"])).toMatchObject({ code: 0 });
  const broken = await world.run(["doctor"]);
  expect(broken).toMatchObject({ code: 4 });
  expect(broken.stdout).toMatch(/^broken +engine +not running\n +Start it: agent-sandbox up --detach$/m);
  const fixed = await world.run(["doctor", "--fix", "-o", "json"]);
  const findings = JSON.parse(fixed.stdout) as { title: string; verdict: string; detail: string }[];
  const of = (title: string): object | undefined => findings.find((finding) => finding.title === title);
  expect(of("engine")).toMatchObject({ verdict: "ok", detail: expect.stringContaining("(mended)") as string });
  expect(of("sandbox on gVisor")).toMatchObject({
    verdict: "ok",
    detail: expect.stringContaining("isolation") as string,
  });
  expect(of("privileges")).toMatchObject({ verdict: "ok", detail: "root" });
  expect((await world.run(["ls", "-o", "name"])).stdout).not.toContain("box-");
});

test("cli cp: - is standard input and standard output, byte for byte", async () => {
  const text = "line\n".repeat(50_000);
  expect(await world.run(["cp", "-", "dev:/tmp/piped"], text)).toEqual({ code: 0, stdout: "", stderr: "" });
  expect(await world.run(["cp", "dev:/tmp/piped", "-"])).toEqual({ code: 0, stdout: text, stderr: "" });
  expect(await world.run(["cp", "dev:/tmp", "-"])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("is a directory"),
  });
  expect(await world.run(["cp", "-", "dev:/tmp"], text)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("is a directory"),
  });
});

test("cli get: several kinds at once, and all", async () => {
  const both = await world.run(["get", "sandboxes,pods"]);
  expect(both.stdout).toMatch(/^NAME .*\nsandboxes\/dev .*\n(?:.+\n)*\nNAME .*\n(?:.*\n)*pods\/dev /m);
  const all = await world.run(["get", "all", "-o", "name"]);
  expect([all.code, all.stdout.split("\n")]).toEqual([0, expect.arrayContaining(["sandboxes/dev", "pods/dev"])]);
  const list = JSON.parse((await world.run(["get", "sb,po", "dev", "-o", "json"])).stdout) as {
    kind: string;
    items: { kind: string }[];
  };
  expect([list.kind, ...list.items.map(({ kind }) => kind)]).toEqual(["List", "Sandbox", "Pod"]);
});

test("cli template rm: a template in use says what it waits for", async () => {
  expect(await world.run(["pool", "create", "crew", "--image", "host", "--size", "1"])).toMatchObject({ code: 0 });
  await expect
    .poll(async () => (await world.run(["get", "pool", "crew", "-o", "json"])).stdout, { timeout: 30_000 })
    .toContain('"readyReplicas": 1');
  const removing = world.start(["template", "rm", "crew"]);
  let said = "";
  removing.stderr?.on("data", (chunk: Buffer) => (said += chunk.toString("utf8")));
  await expect
    .poll(() => said, { timeout: 20_000 })
    .toMatch(
      /^sandboxtemplates\/crew goes when nothing made from it is left: pool 'crew', sandbox 'crew-\w+'; delete those, .*\n$/,
    );
  expect(await world.run(["pool", "rm", "crew"])).toMatchObject({ code: 0 });
  expect(await once(removing, "close")).toEqual([0, null]);
});
