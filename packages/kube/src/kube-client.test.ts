import { type ConfigMap, configMaps, nodes, pods } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import type { Client } from "./client.ts";
import { createClient } from "./kube-client.ts";
import { readLines } from "./line-reader.ts";
import { type ScriptedAnswer, ScriptedTransport } from "./testing/scripted-transport.ts";
import type { KubeRequest } from "./transport.ts";

async function ask(
  call: (client: Client) => Promise<unknown>,
  answer: ScriptedAnswer = { body: {} },
): Promise<KubeRequest> {
  const transport = new ScriptedTransport([answer]);
  await call(createClient(transport, { userAgent: "test" }));
  return transport.requests[0] as KubeRequest;
}

const key = { namespace: "ns", name: "a" };
const object: ConfigMap = { apiVersion: "v1", kind: "ConfigMap", metadata: key };

test("createClient: get: asks for the object's path and its subresource", async () => {
  expect(await ask((client) => client.get(pods, key, { subresource: "status" }))).toMatchObject({
    method: "GET",
    path: "/api/v1/namespaces/ns/pods/a/status",
    headers: { accept: "application/json", "user-agent": "test" },
  });
});

test("createClient: list: carries selectors, and fills in what servers leave out of items", async () => {
  const transport = new ScriptedTransport([{ body: { metadata: {}, items: [{ metadata: key }] } }]);
  const listed = await createClient(transport).list(pods, { labelSelector: "a in (b,c)", limit: 5 });
  expect(transport.requests[0]?.path).toBe("/api/v1/pods?labelSelector=a+in+%28b%2Cc%29&limit=5");
  expect(listed.items[0]).toMatchObject({ apiVersion: "v1", kind: "Pod" });
});

test("createClient: create: posts to the collection of the object's namespace", async () => {
  const request = await ask((client) => client.create(configMaps, object, { fieldManager: "me", dryRun: true }));
  expect(request).toMatchObject({
    method: "POST",
    path: "/api/v1/namespaces/ns/configmaps?fieldManager=me&dryRun=All",
    body: JSON.stringify(object),
  });
});

test("createClient: patch: each type has its media type", async () => {
  const types = ["json", "merge", "strategic", "apply"] as const;
  const sent = await Promise.all(
    types.map((type) => ask((client) => client.patch(configMaps, key, { type, body: {} }, { force: true }))),
  );
  expect(sent.map(({ headers }) => headers?.["content-type"])).toEqual([
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
  ]);
  expect(sent[0]?.path).toContain("?force=true");
});

test("createClient: delete: preconditions and policy go into the body", async () => {
  const request = await ask((client) => client.delete(configMaps, key, { uid: "u", propagationPolicy: "Foreground" }));
  expect(JSON.parse(String(request.body))).toEqual({
    apiVersion: "v1",
    kind: "DeleteOptions",
    propagationPolicy: "Foreground",
    preconditions: { uid: "u" },
  });
});

test("createClient: an empty name: never becomes a request for the whole collection", async () => {
  await expect(ask(async (client) => client.delete(nodes, { name: "" }))).rejects.toThrow("bug: nodes without a name");
});

test("createClient: Retry-After: comes with the error", async () => {
  const answer = { status: 429, headers: { "retry-after": "7" }, body: { kind: "Status", message: "slow down" } };
  await expect(ask((client) => client.get(pods, key), answer)).rejects.toMatchObject({
    reason: "TooManyRequests",
    retryAfterSeconds: 7,
  });
});

test("createClient: a Status: is thrown as the ApiError it is", async () => {
  const status = { kind: "Status", status: "Failure", reason: "NotFound", code: 404, message: 'pods "a" not found' };
  await expect(ask((client) => client.get(pods, key), { status: 404, body: status })).rejects.toMatchObject({
    name: "ApiError",
    reason: "NotFound",
    message: 'pods "a" not found',
  });
});

test("createClient: an answer of a proxy that is no Status: keeps the code and the text", async () => {
  await expect(ask((client) => client.get(pods, key), { status: 502, body: "bad gateway" })).rejects.toMatchObject({
    reason: "Unknown",
    status: 502,
    message: '"bad gateway"',
  });
});

test("createClient: a broken connection: is an ApiError with its cause", async () => {
  await expect(ask((client) => client.get(pods, key), { breaks: true })).rejects.toMatchObject({
    reason: "ServiceUnavailable",
    message: "GET /api/v1/namespaces/ns/pods/a: connection reset",
    cause: expect.objectContaining({ message: "connection reset" }) as unknown,
  });
});

test("createClient: an aborted call: rejects with the signal's reason", async () => {
  const stop = new AbortController();
  const call = ask((client) => client.get(pods, key, { signal: stop.signal }), { hold: true });
  setImmediate(() => stop.abort(new Error("enough")));
  await expect(call).rejects.toThrow("enough");
});

test("createClient: watch: an ERROR event is thrown", async () => {
  const status = { kind: "Status", status: "Failure", reason: "Expired", code: 410, message: "too old" };
  const client = createClient(new ScriptedTransport([{ lines: [{ type: "ERROR", object: status }] }]));
  const iterate = async (): Promise<void> => {
    for await (const _ of client.watch(pods));
  };
  await expect(iterate()).rejects.toMatchObject({ reason: "Expired", status: 410 });
});

test("readLines: lines cut anywhere: come out whole, multi-byte characters included", async () => {
  const bytes = Buffer.from('{"a":"\u00e4\u{1f600}"}\n\n{"b":1}\n{"c"');
  async function* chunks(size: number): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
  }
  for (const size of [1, 2, 3, 7, 100]) {
    const lines: string[] = [];
    for await (const line of readLines(chunks(size))) lines.push(line);
    expect(lines).toEqual(['{"a":"\u00e4\u{1f600}"}', '{"b":1}', '{"c"']);
  }
});

test("createClient: priority: a call's own goes before its client's, urgent is the default, and a watch is a stream", async () => {
  const priorityOf = async (call: (client: Client) => Promise<unknown>) => (await ask(call)).priority;
  expect(await priorityOf((client) => client.get(pods, key))).toBe("urgent");
  expect(await priorityOf((client) => client.at("background").delete(pods, key))).toBe("background");
  expect(await priorityOf((client) => client.at("background").create(configMaps, object, { priority: "urgent" }))).toBe(
    "urgent",
  );
  const request = await ask((client) => client.at("background").delete(pods, key, { priority: "urgent" }));
  expect(JSON.parse(String(request.body))).toEqual({ apiVersion: "v1", kind: "DeleteOptions" });
  const drain = async (client: Client): Promise<void> => {
    for await (const _event of client.at("background").watch(pods));
  };
  const watch = await ask(drain, { lines: [] });
  expect([watch.priority, watch.headers?.["user-agent"]]).toEqual(["stream", "test"]);
});
