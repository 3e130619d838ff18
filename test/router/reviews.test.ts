import { createClient, type KubeRequest, type Transport } from "@agent-sandbox/kube";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { componentUser } from "../../packages/server/src/apiserver/auth/components.ts";
import { call } from "./http-call.ts";
import { RouterWorld } from "./router-world.ts";
import { openUpstream } from "./upstream.ts";

let world: RouterWorld;
let port: number;
let token: string;
/** Paths of the reviews that were asked for. */
let reviews: string[] = [];
/** What the API server does with a review before it answers. */
let before: () => Promise<void> = async () => undefined;

function watched(inner: Transport): Transport {
  return {
    request: async (request: KubeRequest) => {
      if (request.path.endsWith("reviews")) {
        reviews.push(request.path.split("/").at(-1) ?? "");
        await before();
      }
      return inner.request(request);
    },
    upgrade: (request) => inner.upgrade(request),
    close: () => inner.close(),
  };
}

beforeAll(async () => {
  world = await RouterWorld.open();
  const client = createClient(watched(world.api.transportFor(componentUser("sandbox-router"))));
  const router = await world.router({ client, access: { mode: "access-review" } });
  port = await router.listen({ host: "127.0.0.1", port: 0 }, { kind: "credentials" });
  const address = await world.sandbox(router, "box");
  await openUpstream(world, { address, port: 8888 }, (_request, response) => response.end("ok"));
  await world.grantConnect("default", { kind: "ServiceAccount", name: "one", namespace: "default" });
});

beforeEach(async () => {
  // A token that no answer is remembered for.
  token = await world.token("default", "one");
  reviews = [];
  before = async () => undefined;
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const ask = () => call(port, "/", { headers: { "X-Sandbox-ID": "box", Authorization: `Bearer ${token}` } });

test("router reviews: callers at the same time share one question (G18)", async () => {
  const answers = await Promise.all(Array.from({ length: 40 }, ask));
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect(reviews.filter((name) => name === "tokenreviews")).toHaveLength(1);
});

test("router reviews: a caller who leaves does not take the answer along (G18)", async () => {
  const gate = Promise.withResolvers<void>();
  before = () => gate.promise;
  const leaving = new AbortController();
  const gone = fetch(`http://127.0.0.1:${port}/`, {
    signal: leaving.signal,
    headers: { "X-Sandbox-ID": "box", Authorization: `Bearer ${token}` },
  }).catch(() => "gone");
  await expect.poll(() => reviews.length).toBe(1);
  const staying = ask();
  leaving.abort();
  expect(await gone).toBe("gone");
  gate.resolve();
  expect((await staying).status).toBe(200);
});

test("router reviews: a failure is told without its inside, and is not remembered (G18)", async () => {
  before = () => Promise.reject(new Error("connect ECONNREFUSED 10.0.0.1:6443 with a password"));
  const failed = await ask();
  expect(failed).toMatchObject({ status: 503, headers: { "retry-after": "1" } });
  expect(failed.text).toBe('{"detail":"authorisation is not available"}\n');
  before = async () => undefined;
  expect((await ask()).status).toBe(200);
});
