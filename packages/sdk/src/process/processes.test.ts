import { expect, test } from "vitest";
import { SandboxError } from "../errors/sandbox-error.ts";
import { markUnsent } from "../errors/unsent.ts";
import { ConnectClient } from "../plane/connect-client.ts";
import type { PlaneRequest } from "../plane/data-plane.ts";
import { decodeMessage } from "../plane/protobuf.ts";
import { answer, ScriptedPlane, stream } from "../testing/scripted-plane.ts";
import type { EndQuestion, FindEnd } from "./event-stream.ts";
import { Processes } from "./processes.ts";
import { CommandError } from "./run-result.ts";
import { attachType, startType } from "./wire.ts";

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const started = { started: { id: "p1", pid: 7 } };
const stdout = (text: string, offset: number): object => ({ stdout: { data: base64(text), offset: String(offset) } });
const stderr = (text: string, offset: number): object => ({ stderr: { data: base64(text), offset: String(offset) } });

function processesOn(plane: ScriptedPlane, findEnd?: FindEnd): Processes {
  return new Processes(new ConnectClient(plane), { newKey: () => "key-1", findEnd });
}

function messageOf({ body, path }: PlaneRequest): unknown {
  const type = path.endsWith("/Start") ? startType : attachType;
  return decodeMessage(type, (body as Uint8Array).subarray(5));
}

test("run: output is split by stream and kept in order together", async () => {
  const events = [started, stdout("a", 0), stderr("b", 1), stdout("c", 2), { exit: { code: 3 } }];
  const result = await processesOn(new ScriptedPlane(stream(events, {}))).run("x");
  expect(result).toMatchObject({ exitCode: 3, stdout: "ac", stderr: "b", combined: "abc", timedOut: false });
});

test("run: a lost connection is attached again behind the last byte seen", async () => {
  const plane = new ScriptedPlane(
    stream([started, stdout("abc", 0)]),
    stream([started, stdout("def", 3), { exit: {} }], {}),
  );
  const result = await processesOn(plane).run(["x"]);
  expect(result.stdout).toBe("abcdef");
  expect(plane.requests.map(({ path }) => path)).toEqual([
    "/agentsandbox.v1.ProcessService/Start",
    "/agentsandbox.v1.ProcessService/Attach",
  ]);
  expect(messageOf(plane.requests[1] as PlaneRequest)).toEqual({ id: "p1", fromOffset: 3 });
});

test("run: a start without an answer is repeated under the same key only", async () => {
  const lost = (): never => {
    throw new SandboxError("connection-lost", "cut");
  };
  const plane = new ScriptedPlane(lost, stream([{ started: { id: "p1", replayed: true } }, { exit: {} }], {}));
  await processesOn(plane).run("x");
  const keys = plane.requests.map((request) => (messageOf(request) as { idempotencyKey: string }).idempotencyKey);
  expect(keys).toEqual(["key-1", "key-1"]);
});

test("run: output that is told twice is taken once", async () => {
  const plane = new ScriptedPlane(
    stream([started, stdout("abc", 0)]),
    stream([started, stdout("bcd", 1), { exit: {} }], {}),
  );
  expect((await processesOn(plane).run("x")).stdout).toBe("abcd");
});

test("run: output that is no longer kept is counted", async () => {
  const dropped = { dropped: { fromOffset: "0", toOffset: "5" } };
  const plane = new ScriptedPlane(stream([started, dropped, stdout("z", 5), { exit: {} }], {}));
  expect(await processesOn(plane).run("x")).toMatchObject({ stdout: "z", droppedBytes: 5 });
});

test("run: check turns an exit code into an error with the result", async () => {
  const plane = new ScriptedPlane(stream([started, stderr("bad", 0), { exit: { code: 2 } }], {}));
  const running = processesOn(plane).run("x", { check: true });
  await expect(running).rejects.toSatisfy((error) => error instanceof CommandError && error.result.exitCode === 2);
});

test("run: a command that ran out of time throws without check", async () => {
  const exit = { exit: { code: 137, signal: "SIGKILL", timedOut: true } };
  const running = processesOn(new ScriptedPlane(stream([started, exit], {}))).run("x", { commandTimeoutMs: 1500 });
  await expect(running).rejects.toMatchObject({ code: "command-timeout" });
});

test("run: text goes to a shell, a list does not, and the timeout is in seconds", async () => {
  const plane = new ScriptedPlane(stream([started, { exit: {} }], {}), stream([started, { exit: {} }], {}));
  const processes = processesOn(plane);
  await processes.run("a b", { commandTimeoutMs: 1500 });
  await processes.run(["a", "b"]);
  const specs = plane.requests.map((request) => (messageOf(request) as { spec: object }).spec);
  expect(specs).toEqual([{ command: ["/bin/sh", "-c", "a b"], timeout: "1.5s" }, { command: ["a", "b"] }]);
});

test("run: a command that does not exist is the server's not-found", async () => {
  const plane = new ScriptedPlane(stream([], { error: { code: "not_found", message: "no such command" } }));
  await expect(processesOn(plane).run(["x"])).rejects.toMatchObject({ code: "not-found", message: "no such command" });
});

test("run: a process that is gone when attaching again ended with its sandbox", async () => {
  const plane = new ScriptedPlane(stream([started]), stream([], { error: { code: "not_found", message: "unknown" } }));
  await expect(processesOn(plane).run("x")).rejects.toMatchObject({ code: "process-ended" });
});

const gone = (): never => {
  throw new SandboxError("not-found", "no such process");
};

test("run: a process whose sandbox was killed for memory has the exit of SIGKILL and the reason", async () => {
  const asked: EndQuestion[] = [];
  const why: FindEnd = async (question) => {
    asked.push(question);
    return question.kind === "lost"
      ? undefined
      : { limit: "OOMKilled", message: "it reached its memory limit of 150Mi" };
  };
  const beforeMs = Date.now();
  const result = await processesOn(new ScriptedPlane(stream([started, stdout("a", 0)]), gone), why).run("x");
  expect(result).toMatchObject({
    exitCode: 137,
    signal: "SIGKILL",
    timedOut: false,
    reason: "OOMKilled: it reached its memory limit of 150Mi",
    stdout: "a",
  });
  expect(asked.map(({ kind }) => kind)).toEqual(["lost", "gone"]);
  expect(asked[0]?.sinceMs).toSatisfy((ms: number) => ms >= beforeMs && ms <= Date.now());
});

test("run: an end that is known at once is not attached to", async () => {
  const plane = new ScriptedPlane(stream([started]));
  const running = processesOn(plane, async () => ({ limit: "OOMKilled", message: "m" })).run("x", { check: true });
  await expect(running).rejects.toMatchObject({
    code: "command-failed",
    message: "command 'x' was ended by SIGKILL (OOMKilled: m)",
  });
  expect(plane.requests).toHaveLength(1);
});

test.each([
  [
    { limit: "PidLimitReached", message: "too many" } as const,
    "the process ended with its sandbox: too many (PidLimitReached)",
  ],
  [
    { message: "container sandbox ended with exit code 1 (Error)" },
    "the process ended with its sandbox: container sandbox ended with exit code 1 (Error)",
  ],
])("run: any other end of the container is an error: %j", async (end, message) => {
  const running = processesOn(new ScriptedPlane(stream([started])), async () => end).run("x");
  await expect(running).rejects.toMatchObject({
    code: "process-ended",
    message,
    limit: "limit" in end ? end.limit : undefined,
  });
});

test("run: a repeated start says since when, and one that a younger daemon refuses is not run again", async () => {
  const lost = (): never => {
    throw new SandboxError("connection-lost", "cut");
  };
  const refused = stream([], { error: { code: "aborted", message: "it may have run" } });
  const plane = new ScriptedPlane(lost, refused);
  const running = processesOn(plane).run("x");
  await expect(running).rejects.toMatchObject({ code: "process-ended" });
  const sent = plane.requests.map((request) => (messageOf(request) as { firstSentMsAgo?: number }).firstSentMsAgo);
  expect(sent).toEqual([undefined, expect.toSatisfy((ms: number) => ms >= 20 && ms < 5_000)]);
});

test("run: a start that never left is repeated as the first", async () => {
  const refused = (): never => {
    throw markUnsent(new SandboxError("unavailable", "connection refused"));
  };
  const plane = new ScriptedPlane(refused, stream([started, { exit: {} }], {}));
  await processesOn(plane).run("x");
  expect(plane.requests.map((request) => (messageOf(request) as { firstSentMsAgo?: number }).firstSentMsAgo)).toEqual([
    undefined,
    undefined,
  ]);
});

test("run: the command's time ends also where its sandbox says nothing", async () => {
  const silent = () => ({
    status: 200,
    headers: {},
    body: (async function* () {
      yield* stream([started])().body;
      await new Promise(() => undefined);
    })(),
  });
  const startMs = Date.now();
  const running = processesOn(new ScriptedPlane(silent)).run("x", { commandTimeoutMs: 50 });
  await expect(running).rejects.toMatchObject({ code: "command-timeout", result: { exitCode: 137, timedOut: true } });
  expect(Date.now() - startMs).toBeLessThan(4_000);
});

test("run: an abort kills the tree and rejects with the signal's reason", async () => {
  const abort = new AbortController();
  const waiting = () => ({
    status: 200,
    headers: {},
    body: (async function* () {
      yield* stream([started])().body;
      abort.abort(new Error("enough"));
      throw abort.signal.reason;
    })(),
  });
  const plane = new ScriptedPlane(waiting, answer(200, { signalled: 1 }));
  await expect(processesOn(plane).run("x", { signal: abort.signal })).rejects.toThrow("enough");
  expect(plane.requests[1]?.path).toBe("/agentsandbox.v1.ProcessService/Signal");
});

/** A start that is never answered; its caller gives up. */
function unanswered(signal: AbortSignal): () => Promise<never> {
  return () =>
    new Promise((_, reject) => {
      if (signal.aborted) reject(signal.reason as Error);
      signal.addEventListener("abort", () => reject(signal.reason as Error));
    });
}

test("run: an abort before the start is known takes the start back by its key, over a lost connection too", async () => {
  const abort = new AbortController();
  const lost = (): never => {
    throw new SandboxError("connection-lost", "cut");
  };
  const plane = new ScriptedPlane(unanswered(abort.signal), lost, answer(200, {}));
  const running = processesOn(plane).run("x", { signal: abort.signal });
  abort.abort(new Error("enough"));
  await expect(running).rejects.toThrow("enough");
  expect(plane.requests.slice(1).map(({ path, body }) => [path, body])).toEqual(
    Array(2).fill(["/agentsandbox.v1.ProcessService/Cancel", '{"idempotencyKey":"key-1"}']),
  );
});

test("run: a start that takes too long is taken back by its key", async () => {
  const plane = new ScriptedPlane(
    () => new Promise((_, reject) => setTimeout(() => reject(new SandboxError("request-timeout", "late")), 5)),
    answer(200, { id: "p1" }),
  );
  await expect(processesOn(plane).run("x", { requestTimeoutMs: 1 })).rejects.toMatchObject({ code: "request-timeout" });
  expect(plane.requests[1]?.path).toBe("/agentsandbox.v1.ProcessService/Cancel");
});

test("run: a start that the sandbox refused is not taken back", async () => {
  const plane = new ScriptedPlane(stream([], { error: { code: "not_found", message: "no such command" } }));
  await expect(processesOn(plane).run("x")).rejects.toMatchObject({ code: "not-found" });
  expect(plane.requests).toHaveLength(1);
});

test("spawn: a stream that nobody reads does not hold the exit back", async () => {
  const big = "x".repeat(3 * 2 ** 20);
  const events = [started, stdout(big, 0), stdout(big, big.length), stdout(big, 2 * big.length), { exit: {} }];
  const process = await processesOn(new ScriptedPlane(stream(events, {}))).spawn("x");
  expect(await process.exited).toMatchObject({ exitCode: 0 });
});

test("spawn: input for a process that has ended is told as such", async () => {
  const refused = answer(400, { code: "failed_precondition", message: "standard input: the process has ended" });
  const process = await processesOn(new ScriptedPlane(stream([started, { exit: {} }], {}), refused)).spawn("x");
  await expect(process.stdin.write("late")).rejects.toMatchObject({ code: "process-ended" });
});
