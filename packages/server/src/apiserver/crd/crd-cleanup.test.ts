import { forbidden, isJsonObject, type JsonObject } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { openStore } from "../../store/sqlite-store.ts";
import type { Store, Write } from "../../store/store.ts";
import { StoreError } from "../../store/store-error.ts";
import { createLogger, type Logger } from "../../telemetry/logger.ts";
import type { Admission } from "../admission/admission.ts";
import type { ApiServerOptions } from "../api-server.ts";
import { listAt, objectAt } from "../json/json.ts";
import { ManualClock, TestServer } from "../testing/test-server.ts";

const crdsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const crdPath = `${crdsPath}/widgets.example.com`;
const widgetsPath = "/apis/example.com/v1/namespaces/default/widgets";

const crd: JsonObject = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.com" },
  spec: {
    group: "example.com",
    scope: "Namespaced",
    names: { kind: "Widget", plural: "widgets" },
    versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: { type: "object" } } }],
  },
};

async function withWidgets(names: readonly string[], options: Partial<ApiServerOptions> = {}): Promise<TestServer> {
  const server = new TestServer(options);
  expect((await server.call("POST", crdsPath, { body: crd })).status).toBe(201);
  for (const name of names) {
    const body = { apiVersion: "example.com/v1", kind: "Widget", metadata: { name } };
    expect((await server.call("POST", widgetsPath, { body })).status).toBe(201);
  }
  return server;
}

async function terminating(server: TestServer): Promise<JsonObject | undefined> {
  const { body } = await server.call("GET", crdPath);
  return listAt(objectAt(body, "status"), "conditions")
    .filter(isJsonObject)
    .find(({ type }) => type === "Terminating");
}

/** Refuses to delete the widgets that it is asked to hold. */
function holding(held: Set<string>): Admission {
  return {
    name: "Holding",
    handles: ({ verb, resource }) => verb === "delete" && resource === "widgets",
    validate: ({ name }) => {
      if (held.has(name)) throw forbidden({ resource: "widgets", name }, "it is held");
    },
  };
}

function recording(): { logger: Logger; lines: JsonObject[] } {
  const lines: JsonObject[] = [];
  const write = (text: string): void => void lines.push(JSON.parse(text) as JsonObject);
  return { lines, logger: createLogger({ component: "test", destination: { write } }) };
}

test("CrdCleanup: an object that cannot be deleted is named by condition and log, and tried again", async () => {
  const held = new Set(["b"]);
  const { logger, lines } = recording();
  await using server = await withWidgets(["a", "b"], { admission: [holding(held)], logger });
  await server.call("DELETE", crdPath);
  await expect
    .poll(() => terminating(server))
    .toMatchObject({
      status: "True",
      reason: "InstanceDeletionFailed",
      message: 'could not issue all deletes: default/b: widgets "b" is forbidden: it is held',
    });
  expect((await server.call("GET", `${widgetsPath}/a`)).status).toBe(404);
  expect(lines).toContainEqual(
    expect.objectContaining({
      level: "warn",
      crd: "widgets.example.com",
      err: expect.objectContaining({ message: expect.stringContaining("default/b:") as string }) as JsonObject,
    }),
  );
  held.clear();
  await expect
    .poll(async () => {
      server.clock.advance(60_000);
      return (await server.call("GET", crdPath)).status;
    })
    .toBe(404);
});

test("CrdCleanup: while objects wait for their finalizers the condition says so, and a change of the CRD keeps it", async () => {
  await using server = await withWidgets(["a"]);
  const merge = "application/merge-patch+json";
  const wait = (finalizers: string[] | null) =>
    server.call("PATCH", `${widgetsPath}/a`, { type: merge, body: { metadata: { finalizers } } });
  await wait(["example.com/wait"]);
  await server.call("DELETE", crdPath);
  const inProgress = {
    status: "True",
    reason: "InstanceDeletionInProgress",
    message: "CustomResource deletion is in progress",
  };
  await expect.poll(() => terminating(server)).toMatchObject(inProgress);
  await server.call("PATCH", crdPath, { type: merge, body: { metadata: { labels: { a: "b" } } } });
  expect(await terminating(server)).toMatchObject(inProgress);
  await wait(null);
  await expect.poll(async () => (await server.call("GET", crdPath)).status).toBe(404);
});

test("CrdCleanup: a CRD that others still hold says that its objects are gone", async () => {
  await using server = await withWidgets(["a"]);
  const metadata = { finalizers: ["customresourcecleanup.apiextensions.k8s.io", "example.com/wait"] };
  await server.call("PATCH", crdPath, { type: "application/merge-patch+json", body: { metadata } });
  await server.call("DELETE", crdPath);
  await expect
    .poll(() => terminating(server))
    .toMatchObject({
      status: "False",
      reason: "InstanceDeletionCompleted",
      message: "removed all instances",
    });
  const { body } = await server.call("GET", crdPath);
  expect(listAt(objectAt(body, "metadata"), "finalizers")).toEqual(["example.com/wait"]);
});

/** Passes everything on, but fails the writes that the function picks. */
function failing(store: Store, fails: (write: Write) => boolean): Store {
  return {
    get revision() {
      return store.revision;
    },
    get compactedRevision() {
      return store.compactedRevision;
    },
    append: (write) =>
      fails(write) ? Promise.reject(new StoreError("full", "the disk is full")) : store.append(write),
    get: (key) => store.get(key),
    list: (query) => store.list(query),
    watch: (query) => store.watch(query),
    compact: (revision) => store.compact(revision),
    close: () => store.close(),
  };
}

test("CrdCleanup: the CRD goes although the first attempt to write its end fails", async () => {
  const clock = new ManualClock();
  const { logger, lines } = recording();
  let failures = 1;
  const isEnd = ({ key, delete: isDelete }: Write) =>
    key.includes("customresourcedefinitions") && isDelete === true && failures-- > 0;
  const store = failing(openStore({ path: ":memory:", clock }), isEnd);
  await using server = await withWidgets(["a"], { store, clock, logger });
  await server.call("DELETE", crdPath);
  await expect.poll(() => lines.map(({ crd: name }) => name)).toContain("widgets.example.com");
  expect((await server.call("GET", crdPath)).status).toBe(200);
  await expect
    .poll(async () => {
      clock.advance(60_000);
      return (await server.call("GET", crdPath)).status;
    })
    .toBe(404);
  await store.close();
});
