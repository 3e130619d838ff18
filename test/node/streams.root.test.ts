import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RealEngine } from "./real-engine.ts";

let engine: RealEngine;
let work: string;

const counting = "echo begin; i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done";

beforeAll(async () => {
  work = mkdtempSync("/tmp/as-streams-");
  engine = await RealEngine.open();
  await Promise.all([
    engine.startPod("box"),
    engine.startPod("counter", { command: ["sh", "-c", counting] }),
    engine.startPod("echoer", {
      spec: {
        containers: [
          { name: "main", image: "host", stdin: true, command: ["sh", "-c", "while read l; do echo got $l; done"] },
        ],
      },
    }),
    engine.startPod("restarting", { command: ["sh", "-c", "echo run $((1)); date +%s%N; exit 7"] }),
    engine.startPod("bare", { metadata: { name: "bare", annotations: { "agent-sandbox.dev/sandboxd": "disabled" } } }),
  ]);
  await Promise.all(["box", "counter", "echoer", "bare"].map((name) => engine.readyPod(name)));
});

afterAll(async () => {
  rmSync(work, { recursive: true, force: true });
  await engine[Symbol.asyncDispose]();
});

test("streams exec: kubectl carries stdin, both outputs and the exit code", async () => {
  const script = "cat; echo problem >&2; exit 42";
  const done = await engine.kubectlWith("some input", "exec", "-i", "box", "--", "sh", "-c", script);
  expect(done).toMatchObject({ status: 42, stdout: "some input" });
  expect(done.stderr).toContain("problem");
});

test("streams exec: a terminal is one where asked for", async () => {
  const terminal = [
    "script",
    "-qec",
    `${engine.kubectlArgv().join(" ")} exec -it box -- sh -c 'tty; stty size'`,
    "/dev/null",
  ];
  const text = await output(terminal, { COLUMNS: "80" });
  expect(text).toMatch(/\/dev\/(pts\/\d+|tty)/);
  expect(text).toMatch(/\d+ \d+/);
});

test("streams exec: a megabyte comes through unchanged, both ways", async () => {
  const text = "0123456789abcdef".repeat(65_536);
  const done = await engine.kubectlWith(text, "exec", "-i", "box", "--", "cat");
  expect(done.status).toBe(0);
  expect(done.stdout === text).toBe(true);
});

test("streams exec: works over SPDY for clients that speak no WebSocket, and without the daemon", async () => {
  const old = await output([...engine.kubectlArgv(), "exec", "box", "--", "echo", "spdy"], {
    KUBECTL_REMOTE_COMMAND_WEBSOCKETS: "false",
  });
  expect(old).toBe("spdy\n");
  const done = await engine.kubectlWith("", "exec", "bare", "--", "sh", "-c", "echo direct; exit 5");
  expect(done).toMatchObject({ status: 5, stdout: "direct\n" });
});

test("streams exec: a pod that takes over an address answers for itself", async () => {
  for (const name of ["tenant-1", "tenant-2"]) {
    await engine.startPod(name);
    await engine.readyPod(name);
    expect((await engine.sh(name, "hostname", { timeoutMs: 15_000 })).stdout).toBe(`${name}\n`);
    await engine.removePod(name);
  }
});

test("streams attach: output and input reach the first process", async () => {
  const [program = "", ...args] = engine.kubectlArgv();
  const child = spawn(program, [...args, "attach", "-i", "echoer"]);
  let seen = "";
  child.stdout.on("data", (chunk: Buffer) => {
    seen += chunk.toString();
  });
  const signal = AbortSignal.timeout(15_000);
  while (!seen.includes("got hello")) {
    signal.throwIfAborted();
    child.stdin.write("hello\n");
    await sleep(200);
  }
  child.kill("SIGKILL");
});

test("streams logs: follow, tail, since, timestamps and previous", async () => {
  // A line that is written while the last one is read comes with it, as from a kubelet.
  expect(await engine.kubectl("logs", "counter", "--tail=1")).toMatch(/^(line \d+\n){1,2}$/);
  expect(await engine.kubectl("logs", "counter", "--limit-bytes=5")).toBe("begin");
  expect(await engine.kubectl("logs", "counter", "--timestamps", "--tail=1")).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z line/);
  await sleep(1_500);
  const recent = (await engine.kubectl("logs", "counter", "--since=1s")).trim().split("\n");
  expect(recent.length).toBeLessThanOrEqual(7);
  expect(recent.length).toBeGreaterThanOrEqual(2);
  const [program = "", ...args] = engine.kubectlArgv();
  const follow = spawn(program, [...args, "logs", "-f", "counter"]);
  let text = "";
  follow.stdout.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  await sleep(2_000);
  follow.kill("SIGKILL");
  const numbers = [...text.matchAll(/line (\d+)/g)].map((match) => Number(match[1]));
  expect(numbers.length).toBeGreaterThan(8);
  expect(numbers).toEqual(numbers.map((_, index) => index + 1));
  await engine.podWhere("restarting", ({ status }) => (status?.containerStatuses?.[0]?.restartCount ?? 0) > 0);
  expect(await engine.kubectl("logs", "restarting", "--previous")).toMatch(/^run 1\n\d+\n$/);
});

test("streams cp: a file goes in and comes out unchanged", async () => {
  const file = path.join(work, "sent");
  const bytes = Buffer.alloc(300_000, "The quick brown fox. ");
  writeFileSync(file, bytes);
  await engine.kubectl("cp", file, "box:/tmp/there");
  expect((await engine.sh("box", "wc -c < /tmp/there")).stdout.trim()).toBe("300000");
  await engine.kubectl("cp", "box:/tmp/there", path.join(work, "back"));
  expect(readFileSync(path.join(work, "back")).equals(bytes)).toBe(true);
});

const server = `python3 -c "
import socket
s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('ADDRESS',PORT)); s.listen(5)
while True:
  c,_=s.accept(); d=c.recv(64); c.sendall(b'served '+d); c.close()
" >/dev/null 2>&1 & sleep 0.7`;

test.each([
  ["WebSocket", "true", "0.0.0.0", 8001],
  ["SPDY", "false", "0.0.0.0", 8002],
  ["WebSocket", "true", "127.0.0.1", 8003],
])("streams port-forward: over %s (%s) a listener on %s:%d answers", async (_protocol, webSockets, address, port) => {
  await engine.sh("box", server.replace("ADDRESS", address).replace("PORT", String(port)));
  const [program = "", ...args] = engine.kubectlArgv();
  const child = spawn(program, [...args, "port-forward", "pod/box", `:${port}`], {
    env: { ...process.env, KUBECTL_PORT_FORWARD_WEBSOCKETS: webSockets },
  });
  try {
    const local = await new Promise<number>((resolve, reject) => {
      child.once("exit", (code) => reject(new Error(`port-forward ended with ${code}`)));
      child.stdout.on("data", (chunk: Buffer) => {
        const match = /127\.0\.0\.1:(\d+)/.exec(chunk.toString());
        if (match !== null) resolve(Number(match[1]));
      });
    });
    expect(await askPort(local, "you")).toBe("served you");
    expect(await askPort(local, "again")).toBe("served again");
  } finally {
    child.removeAllListeners("exit");
    child.kill("SIGKILL");
  }
});

function askPort(port: number, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, "127.0.0.1", () => socket.write(text));
    let answer = "";
    socket.on("data", (chunk) => {
      answer += chunk.toString();
    });
    socket.once("close", () => resolve(answer));
    socket.once("error", reject);
    socket.setTimeout(10_000, () => socket.destroy(new Error("no answer within 10 s")));
  });
}

function output(argv: readonly string[], env: Record<string, string>): Promise<string> {
  return new Promise((resolve, reject) => {
    const [program = "", ...args] = argv;
    const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] });
    let text = "";
    child.stdout.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
    child.once("close", () => resolve(text));
    child.once("error", reject);
  });
}
