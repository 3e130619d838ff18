import { expect, test } from "vitest";
import { answer, ScriptedPlane } from "../testing/scripted-plane.ts";
import { daemonPort, readText } from "./data-plane.ts";
import { RouterPlane, routerHeaders } from "./router-plane.ts";

const request = { method: "GET", port: daemonPort, path: "/" };
const cases = [
  { status: 401, code: "unauthenticated" },
  { status: 403, code: "permission-denied" },
  { status: 409, code: "sandbox-held" },
  { status: 410, code: "sandbox-expired" },
  { status: 429, code: "quota-exceeded" },
  { status: 503, code: "sandbox-not-ready" },
  { status: 504, code: "request-timeout" },
];

test.each(cases)("RouterPlane: a refusal with $status is $code", async ({ status, code }) => {
  const plane = new RouterPlane(new ScriptedPlane(answer(status, { detail: "why" })));
  await expect(plane.request(request)).rejects.toMatchObject({ code, message: "why" });
});

test("RouterPlane: a sandbox that starts is asked again after the time the router gives", async () => {
  const inner = new ScriptedPlane(
    answer(503, { detail: "starting" }, { "retry-after": "0" }),
    answer(200, { fine: true }),
  );
  const { body } = await new RouterPlane(inner).request(request);
  expect(await readText(body)).toBe('{"fine":true}');
});

test("RouterPlane: the sandbox's own errors pass with their body", async () => {
  const inner = new ScriptedPlane(answer(404, { code: "NOT_FOUND", message: "no such file" }));
  const response = await new RouterPlane(inner).request(request);
  expect([response.status, await readText(response.body)]).toEqual([
    404,
    '{"code":"NOT_FOUND","message":"no such file"}',
  ]);
});

test("RouterPlane: answers of the user's own port are never read as refusals", async () => {
  const inner = new ScriptedPlane(answer(503, { detail: "mine" }, { "retry-after": "1" }));
  expect(await new RouterPlane(inner).request({ ...request, port: 8000 })).toMatchObject({ status: 503 });
});

test("RouterPlane: a POST that may have arrived is not sent again", async () => {
  const inner = new ScriptedPlane(answer(502, { detail: "lost" }));
  await expect(new RouterPlane(inner).request({ ...request, method: "POST", body: "x" })).rejects.toMatchObject({
    code: "unavailable",
  });
  expect(inner.requests).toHaveLength(1);
});

test("routerHeaders: a known uid keeps a request from another sandbox of the same name", () => {
  expect(routerHeaders({ namespace: "n", name: "box", uid: "u-1" }, 80)).toMatchObject({ "x-sandbox-uid": "u-1" });
  expect(routerHeaders({ namespace: "n", name: "box" }, 80)).not.toHaveProperty("x-sandbox-uid");
});
