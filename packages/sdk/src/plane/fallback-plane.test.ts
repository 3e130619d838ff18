import { expect, test } from "vitest";
import { SandboxError } from "../errors/sandbox-error.ts";
import { answer, ScriptedPlane } from "../testing/scripted-plane.ts";
import { daemonPort } from "./data-plane.ts";
import { FallbackPlane } from "./fallback-plane.ts";

const request = { method: "GET", port: daemonPort, path: "/x" };
const refused = (): never => {
  throw new SandboxError("unavailable", "connection refused");
};
const silent = (): Promise<never> => new Promise(() => undefined);

test("FallbackPlane: the first way that answers is kept", async () => {
  const open = new ScriptedPlane(answer(200, {}), answer(201, {}), answer(202, {}));
  const plane = new FallbackPlane({
    ready: () => Promise.resolve(),
    ways: [
      { open: () => new ScriptedPlane(refused), probeTimeoutMs: 1000 },
      { open: () => open, probeTimeoutMs: 1000 },
    ],
    last: () => new ScriptedPlane(),
  });
  expect([(await plane.request(request)).status, (await plane.request(request)).status]).toEqual([201, 202]);
  expect(open.requests.map(({ path }) => path)).toEqual(["/v1/health", "/x", "/x"]);
});

test("FallbackPlane: the last way is taken when no other answers", async () => {
  const last = new ScriptedPlane(answer(200, {}));
  const abortable = new ScriptedPlane(() =>
    Promise.race([silent(), new Promise<never>((_, no) => setTimeout(no, 20))]),
  );
  const ways = [{ open: () => abortable, probeTimeoutMs: 10 }];
  const plane = new FallbackPlane({ ready: () => Promise.resolve(), ways, last: () => last });
  expect((await plane.request(request)).status).toBe(200);
});

test("FallbackPlane: a sandbox that is not there is the caller's error, and is asked for again", async () => {
  const outcomes = [Promise.reject(new SandboxError("sandbox-held", "asleep")), Promise.resolve()];
  const last = new ScriptedPlane(answer(200, {}));
  const plane = new FallbackPlane({ ready: () => outcomes.shift() ?? silent(), ways: [], last: () => last });
  await expect(plane.request(request)).rejects.toMatchObject({ code: "sandbox-held" });
  expect((await plane.request(request)).status).toBe(200);
});
