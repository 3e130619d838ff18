import { setTimeout as pause } from "node:timers/promises";
import { sandboxes } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EngineRouter } from "../router/engine-router.ts";
import { Box, deepRungs } from "./box.ts";

/** Times that a sandbox falls asleep under its callers; `npm test -- --full` runs more. */
const rounds = process.env["AGENT_SANDBOX_TEST_FULL"] === "1" ? 60 : 8;
const callers = 4;

let world: EngineRouter;
beforeAll(async () => {
  world = await EngineRouter.open();
}, 180_000);
afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

/** Answers each call with its name, and with how often a call of that name has come. */
const server = String.raw`
import collections, http.server, time
came = collections.Counter()
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        came[self.path] += 1
        if self.path == "/slow": time.sleep(1)
        body = f"{self.path} {came[self.path]}".encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
`;

const template = {
  containers: [
    {
      name: "main",
      image: "host",
      command: ["python3", "-c", server],
      readinessProbe: { tcpSocket: { port: 8000 }, periodSeconds: 1 },
    },
  ],
};

/** Calls one after another until `over` is aborted; resolves with how many were answered, and with every call that was not. */
async function callOn(
  { name, rung }: Box,
  caller: number,
  over: AbortSignal,
): Promise<{ answered: number; lost: string[] }> {
  const lost: string[] = [];
  let answered = 0;
  for (let call = 0; !over.aborted; call += 1) {
    const target = `/${caller}-${call}`;
    const said = await world.call(name, target, { port: 8000 }).then(
      ({ status, text }) => `${status} ${text}`,
      (error: unknown) => String(error),
    );
    // One that memory was saved under is made again, and may have come to the program before.
    if (said === `200 ${target} 1` || (rung === "Hibernate" && said === `200 ${target} 2`)) answered += 1;
    else lost.push(said);
    await pause(5);
  }
  return { answered, lost };
}

/** Every sleep that the Sandbox was asked for until the end: calls wake it before it is seen asleep more often than not. */
async function watchSleeps(name: string, signal: AbortSignal): Promise<Set<string>> {
  const { client } = world.engine;
  const seen = new Set<string>();
  const { resourceVersion = "" } = (await client.list(sandboxes, { namespace: "default" })).metadata;
  try {
    for await (const { type, object } of client.watch(sandboxes, { namespace: "default", resourceVersion, signal })) {
      const id = type === "MODIFIED" && object.metadata.name === name ? object.status?.sleep?.id : undefined;
      if (id !== undefined) seen.add(id);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  return seen;
}

test.each(deepRungs)(
  `falling asleep: %s: of callers that never stop none is lost over ${rounds} sleeps`,
  async (rung) => {
    const box = new Box(world.engine, `called-${rung.toLowerCase()}`, rung);
    await box.start(template);
    const over = new AbortController();
    const calling = Array.from({ length: callers }, (_, caller) => callOn(box, caller, over.signal));
    const sleeps = watchSleeps(box.name, over.signal);
    for (let round = 0; round < rounds; round += 1) {
      await box.beginSleep();
      await pause(100 + ((round * 37) % 300));
      await box.ready();
    }
    over.abort();
    const outcomes = await Promise.all(calling);
    expect(outcomes.flatMap(({ lost }) => lost)).toEqual([]);
    for (const { answered } of outcomes) expect(answered).toBeGreaterThan(rounds);
    expect((await sleeps).size).toBeGreaterThanOrEqual(rounds / 2);
    expect((await box.pod())?.status?.containerStatuses).toMatchObject([{ restartCount: 0 }]);
    await box.remove();
  },
  600_000,
);

test("falling asleep: Freeze: what is inside when its user freezes it alone is answered, a call and a command alike", async () => {
  const box = new Box(world.engine, "frozen-under", "Freeze");
  await box.start(template);
  const over = new AbortController();
  const sleeps = watchSleeps(box.name, over.signal);
  for (const under of [() => world.call(box.name, "/slow", { port: 8000 }), () => box.sh("sleep 1; echo over")]) {
    const answer = under();
    await pause(300);
    const startMs = performance.now();
    await box.beginSleep();
    expect(JSON.stringify(await answer)).toMatch(/slow 1|over/);
    // Keep-alive breaks a connection to a sandbox that stands still after 15 seconds.
    expect(performance.now() - startMs).toBeLessThan(10_000);
    await box.ready();
  }
  over.abort();
  expect((await sleeps).size).toBe(2);
  await box.remove();
}, 60_000);

test("falling asleep: Freeze: what is inside when its owner freezes it for good is answered with the reason", async () => {
  const box = new Box(world.engine, "held-under", "Freeze");
  await box.start(template);
  const call = world.call(box.name, "/slow", { port: 8000 });
  const command = box.sh("sleep 1; echo over").catch((error: unknown) => String(error));
  await pause(300);
  await world.engine.client.patch(
    sandboxes,
    { namespace: "default", name: box.name },
    { type: "merge", body: { spec: { operatingMode: "Suspended", wakePolicy: "Never" } } },
  );
  expect(await call).toMatchObject({ status: 409, text: expect.stringMatching(/suspended by its owner.*resume/) });
  expect(await command).toMatch(/suspended by its owner.*resume/);
  expect(await box.condition("Suspended")).toBe("True");
  await box.remove();
}, 60_000);
