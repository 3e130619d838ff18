import { type Sandbox, sandboxArchives } from "@agent-sandbox/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { OpenedRouter } from "../../packages/server/src/router/open-router.ts";
import { call } from "./http-call.ts";
import { RouterWorld, until } from "./router-world.ts";
import { openUpstream } from "./upstream.ts";

let world: RouterWorld;
let router: OpenedRouter;
let port: number;

beforeEach(async () => {
  world = await RouterWorld.open();
  await world.namespace("default");
  router = await world.router({ holdLimitMs: 2_000, heldMax: 100 });
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
});

afterEach(async () => {
  await world[Symbol.asyncDispose]();
});

const get = (name: string) => call(port, "/", { headers: { "X-Sandbox-ID": name } });
const at = (name: string) => ({ namespace: "default", name });
const isRecalled = async (name: string): Promise<boolean> =>
  (await world.admin.get(sandboxArchives, at(name))).spec.recall === true;

/** What is left of a sandbox that is in the archive. */
async function archived(
  name: string,
  spec: Partial<Sandbox["spec"]>,
  status: object = { leftAt: "2026-01-01T00:00:00Z" },
) {
  const kind = { apiVersion: "agent-sandbox.dev/v1alpha1", kind: "SandboxArchive" } as const;
  await world.admin.create(sandboxArchives, { ...kind, metadata: at(name), spec: {} });
  const podTemplate = { spec: { containers: [{ name: "main", image: "example.com/app:1" }] } };
  const sandbox = {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: at(name),
    spec: { podTemplate, ...spec },
  };
  const body = { status: { archiveID: "a".repeat(32), sandbox, ...status } };
  await world.admin.patch(sandboxArchives, at(name), { type: "merge", body }, { subresource: "status" });
  // Its watch and the table's are of one server: once another sandbox is known, so is this.
  await world.sandbox(router, `after-${name}`);
}

test("router archive: callers of an archived sandbox ask for it once, and are answered when it is back", async () => {
  await archived("gone", { wakePolicy: "OnTraffic" });
  await until(async () => (await get("after-gone")).status !== 404);
  const calls = Array.from({ length: 5 }, () => get("gone"));
  await until(() => isRecalled("gone"));
  const recalled = await world.admin.get(sandboxArchives, at("gone"));
  const address = world.address();
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("back"));
  const starting = { status: "False", reason: "SandboxRestoring" } as const;
  await world.sandbox(router, "gone", { addresses: [], ready: starting });
  await world.setStatus("gone", { addresses: [address], status: "True", reason: "DependenciesReady" });
  const answers = await Promise.all(calls);
  expect(new Set(answers.map(({ text }) => text))).toEqual(new Set(["back"]));
  const after = await world.admin.get(sandboxArchives, at("gone"));
  expect(after.metadata.resourceVersion).toBe(recalled.metadata.resourceVersion);
});

test("router archive: one that its owner does not want woken stays, and one that nobody archived is unknown", async () => {
  await archived("kept", { wakePolicy: "Never" });
  const refused = await get("kept");
  expect(refused.status).toBe(409);
  expect(refused.text).toContain("agent-sandbox unarchive kept");
  expect(await isRecalled("kept")).toBe(false);
  await archived("asked", { wakePolicy: "OnTraffic" }, { archiveID: null });
  expect((await get("asked")).status).toBe(404);
  expect((await get("never")).status).toBe(404);
});

test("router archive: a caller is held no longer than the limit, and comes back", async () => {
  await archived("slow", { wakePolicy: "OnTraffic" });
  const answer = await get("slow");
  expect(answer.status).toBe(503);
  expect(answer.text).toContain("brought back from the archive");
  expect(answer.headers["retry-after"]).toBeDefined();
});
