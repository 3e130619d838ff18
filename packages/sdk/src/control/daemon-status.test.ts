import { expect, test } from "vitest";
import type { PlaneResponse } from "../plane/data-plane.ts";
import { answer, ScriptedPlane } from "../testing/scripted-plane.ts";
import { readMetrics, readPorts } from "./daemon-status.ts";

const metricsText = `# TYPE sandboxd_requests_total counter
sandboxd_requests_total{kind="process"} 3
sandboxd_uptime_seconds 1.500
`;

function text(status: number, body: string): () => PlaneResponse {
  return () => ({ status, headers: {}, body: one(body) });
}

async function* one(body: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(body);
}

test("readPorts: asks the daemon", async () => {
  const ports = [{ port: 8123, addresses: ["0.0.0.0", "::"] }];
  const plane = new ScriptedPlane(answer(200, { ports }));
  expect(await readPorts(plane, undefined)).toEqual(ports);
  expect(plane.requests).toMatchObject([{ method: "GET", port: 49_900, path: "/v1/ports" }]);
});

test("readPorts: a daemon that knows no ports is unsupported", async () => {
  const old = new ScriptedPlane(answer(404, { code: "NOT_FOUND", message: "no such endpoint" }));
  await expect(readPorts(old, undefined)).rejects.toMatchObject({ code: "unsupported" });
  const none = new ScriptedPlane(answer(501, { code: "unimplemented", message: "no daemon" }));
  await expect(readPorts(none, undefined)).rejects.toMatchObject({ code: "unsupported" });
});

test("readPorts: nonsense is a protocol error", async () => {
  await expect(readPorts(new ScriptedPlane(text(200, "<html>")), undefined)).rejects.toMatchObject({
    code: "protocol-error",
  });
});

test("readMetrics: reads figures by name", async () => {
  expect(await readMetrics(new ScriptedPlane(text(200, metricsText)), undefined)).toEqual({
    'sandboxd_requests_total{kind="process"}': 3,
    sandboxd_uptime_seconds: 1.5,
  });
});

test("readMetrics: a refusal is an error, not figures", async () => {
  await expect(readMetrics(new ScriptedPlane(text(503, "shutting down")), undefined)).rejects.toMatchObject({
    code: "unavailable",
  });
});
