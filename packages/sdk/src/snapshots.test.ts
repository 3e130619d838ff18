import { ignore } from "@agent-sandbox/api/api-error";
import type { Sandbox as SandboxObject, SandboxSnapshot } from "@agent-sandbox/api/kinds.gen";
import { annotationKeys, labelKeys } from "@agent-sandbox/api/labels";
import { sandboxes, sandboxSnapshots } from "@agent-sandbox/api/resource";
import { systemClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { type EmbeddedApi, openEmbeddedApi } from "../../../test/kube/embedded-api.ts";
import type { Engine } from "./engine/engine.ts";
import { isSandboxError } from "./errors/sandbox-error.ts";
import { Sandbox } from "./sandbox.ts";
import { ScriptedPlane } from "./testing/scripted-plane.ts";

const namespace = "default";
const at = (name: string) => ({ namespace, name });
const lastTransitionTime = "2026-01-01T00:00:00Z";

/** The control plane and the node of a test: what becomes of snapshots and of Sandboxes that start from one. */
interface Played {
  readonly snapshot?: (snapshot: SandboxSnapshot) => NonNullable<SandboxSnapshot["status"]>;
  /** The reason of a start that fails; default: it succeeds. */
  readonly restoreFails?: (sandbox: SandboxObject) => string | undefined;
}

interface Stage extends AsyncDisposable {
  readonly api: EmbeddedApi;
  readonly engine: Engine;
  readonly source: Sandbox;
  /** Names of all snapshots that there ever were. */
  readonly seen: Set<string>;
}

async function open(played: Played = {}, spec: Partial<SandboxObject["spec"]> = {}): Promise<Stage> {
  const api = openEmbeddedApi(systemClock);
  await api.serveOwnKinds();
  const over = new AbortController();
  const seen = new Set<string>();
  const playing = [playSnapshots(api, played, seen, over.signal), playSandboxes(api, played, over.signal)];
  const { client } = api;
  const engine: Engine = {
    kind: "local",
    server: "https://test",
    namespace,
    client,
    credentials: { server: "https://test" },
    routerUrl: undefined,
    openPlane: () => new ScriptedPlane(),
    openRouter: () => new ScriptedPlane(),
    isOwn: () => Promise.resolve(true),
    close: () => Promise.resolve(),
  };
  await client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: {
      name: "source",
      namespace,
      labels: { team: "a", [labelKeys.templateRefHash]: "12345678", [labelKeys.claimUid]: "u" },
      annotations: { [annotationKeys.services]: "[]", [annotationKeys.lastActivityAt]: lastTransitionTime },
    },
    spec: { podTemplate: { spec: { containers: [{ name: "main", image: "python:3" }] } }, ...spec },
  });
  return {
    api,
    engine,
    seen,
    source: await Sandbox.get("source", { engine }),
    async [Symbol.asyncDispose]() {
      over.abort(new Error("the test is over"));
      await Promise.allSettled(playing);
      await api[Symbol.asyncDispose]();
    },
  };
}

const readyStatus = (reason: string, status: "True" | "False", message = "words") => ({
  conditions: [{ type: "Ready", status, reason, message, lastTransitionTime }],
});

async function playSnapshots({ client }: EmbeddedApi, played: Played, seen: Set<string>, signal: AbortSignal) {
  for await (const { type, object } of client.watch(sandboxSnapshots, { namespace, signal })) {
    if (type !== "ADDED") continue;
    seen.add(object.metadata.name);
    const source = await client.get(sandboxes, at(object.spec.sandboxName)).catch(ignore("NotFound"));
    const saved = { nodeName: "one", sandboxUID: source?.metadata.uid ?? "gone", sizeBytes: 7, standstillMs: 3 };
    const status = played.snapshot?.(object) ?? { ...saved, ...readyStatus("SnapshotReady", "True") };
    const patch = { type: "merge", body: { status } } as const;
    const written = client.patch(sandboxSnapshots, at(object.metadata.name), patch, { subresource: "status" });
    await written.catch(ignore("NotFound"));
  }
}

async function playSandboxes({ client }: EmbeddedApi, { restoreFails }: Played, signal: AbortSignal) {
  for await (const { type, object } of client.watch(sandboxes, { namespace, signal })) {
    if (type !== "ADDED" || object.spec.restoreFrom === undefined) continue;
    const why = restoreFails?.(object);
    const status =
      why === undefined ? readyStatus("DependenciesReady", "True") : readyStatus("RestoreFailed", "False", why);
    const patch = { type: "merge", body: { status } } as const;
    const written = client.patch(sandboxes, at(object.metadata.name), patch, { subresource: "status" });
    await written.catch(ignore("NotFound"));
  }
}

const namesOf = async ({ api }: Stage): Promise<string[]> =>
  (await api.client.list(sandboxes, { namespace })).items.map(({ metadata }) => metadata.name).sort();
const snapshotsOf = ({ engine }: Stage) => Sandbox.listSnapshots({ engine });

test("snapshot: resolves when it is ready, with what was saved", async () => {
  await using stage = await open();
  const taken = await stage.source.snapshot({ name: "before", memory: false, ttlMs: 90_500 });
  expect(taken).toMatchObject({ name: "before", sandbox: "source", state: "ready", sizeBytes: 7, standstillMs: 3 });
  const { spec } = await stage.api.client.get(sandboxSnapshots, at("before"));
  expect(spec).toEqual({ sandboxName: "source", memory: false, ttlSecondsAfterCreation: 91 });
  expect(await snapshotsOf(stage)).toEqual([taken]);
  await Sandbox.deleteSnapshot("before", { engine: stage.engine });
  await Sandbox.deleteSnapshot("before", { engine: stage.engine });
  expect(await snapshotsOf(stage)).toEqual([]);
});

test.each([
  ["SnapshotFailed", "snapshot-failed"],
  ["SandboxNotFound", "not-found"],
  ["SnapshotsNotAvailable", "unsupported"],
] as const)("snapshot: %s is an error, and leaves nothing", async (reason, code) => {
  await using stage = await open({ snapshot: () => readyStatus(reason, "False", "no room") });
  await expect(stage.source.snapshot()).rejects.toMatchObject({ code, message: expect.stringContaining("no room") });
  expect(await snapshotsOf(stage)).toEqual([]);
});

test("snapshot: one of another sandbox of the same name is not taken for it", async () => {
  const status = { nodeName: "one", sandboxUID: "another", ...readyStatus("SnapshotReady", "True") };
  await using stage = await open({ snapshot: () => status });
  await expect(stage.source.snapshot()).rejects.toMatchObject({ code: "not-found" });
  expect(await snapshotsOf(stage)).toEqual([]);
});

test("snapshot: a wait that takes too long, or is given up, says so and leaves nothing", async () => {
  await using stage = await open({ snapshot: () => readyStatus("NodePending", "False", "no node yet") });
  const late = stage.source.snapshot({ waitTimeoutMs: 50 });
  await expect(late).rejects.toMatchObject({ code: "wait-timeout", message: expect.stringContaining("no node yet") });
  const stop = new AbortController();
  const given = stage.source.snapshot({ signal: stop.signal });
  setTimeout(() => stop.abort(new Error("enough")), 20);
  await expect(given).rejects.toThrow("enough");
  expect(await snapshotsOf(stage)).toEqual([]);
});

test("fork: n sandboxes in order from one snapshot, which is gone afterwards", async () => {
  await using stage = await open(
    {},
    { operatingMode: "Suspended", wakePolicy: "Never", restoreFrom: { snapshotName: "x" } },
  );
  const forks = await stage.source.fork(3, { name: "copy" });
  expect(forks.map((fork) => !isSandboxError(fork) && fork.name)).toEqual(["copy-1", "copy-2", "copy-3"]);
  expect(stage.seen.size).toBe(1);
  expect(await snapshotsOf(stage)).toEqual([]);
  const { metadata, spec } = await stage.api.client.get(sandboxes, at("copy-2"));
  const [snapshotName] = stage.seen;
  expect(spec).toMatchObject({
    operatingMode: "Running",
    wakePolicy: "Never",
    restoreFrom: { snapshotName },
    podTemplate: { spec: { containers: [{ name: "main", image: "python:3" }] } },
  });
  expect(metadata.labels).toEqual({
    team: "a",
    [labelKeys.templateRefHash]: "12345678",
    [labelKeys.createdBy]: "typescript-client",
  });
  expect(metadata.annotations).toEqual({ [annotationKeys.services]: "[]" });
});

test("fork: each that fails is an error in its place, and is not left behind", async () => {
  const restoreFails = ({ metadata }: SandboxObject) => (metadata.name === "copy-2" ? "another runtime" : undefined);
  await using stage = await open({ restoreFails });
  const forks = await stage.source.fork(3, { name: "copy" });
  expect(forks.map((fork) => isSandboxError(fork))).toEqual([false, true, false]);
  expect(forks[1]).toMatchObject({ message: expect.stringContaining("another runtime") });
  expect(await namesOf(stage)).toEqual(["copy-1", "copy-3", "source"]);
  expect(await snapshotsOf(stage)).toEqual([]);
});

test("fork: a snapshot that fails is the error of the call", async () => {
  await using stage = await open({ snapshot: () => readyStatus("SnapshotFailed", "False", "no room") });
  await expect(stage.source.fork(2)).rejects.toMatchObject({ code: "snapshot-failed" });
  expect(await namesOf(stage)).toEqual(["source"]);
});

test("fork: children that nobody waits for keep their snapshot until its time is up", async () => {
  await using stage = await open();
  await stage.source.fork(1, { readyTimeoutMs: 0 });
  const [name = ""] = stage.seen;
  const { spec } = await stage.api.client.get(sandboxSnapshots, at(name));
  expect(spec.ttlSecondsAfterCreation).toBe(3_600);
});

test("fork: a call that is given up leaves neither children nor snapshot", async () => {
  const stop = new AbortController();
  const restoreFails = (): undefined => void setTimeout(() => stop.abort(new Error("enough")), 0);
  await using stage = await open({ restoreFails });
  await expect(stage.source.fork(2, { signal: stop.signal })).rejects.toThrow("enough");
  expect(await namesOf(stage)).toEqual(["source"]);
  expect(await snapshotsOf(stage)).toEqual([]);
});

test.each([0, -1, 1.5, 1_001])("fork: %s sandboxes are refused", async (count) => {
  await using stage = await open();
  await expect(stage.source.fork(count)).rejects.toMatchObject({ code: "invalid-argument" });
  expect(stage.seen.size).toBe(0);
});

test("create: from a snapshot it takes over what ran in the sandbox that it was taken of", async () => {
  await using stage = await open({}, { wakePolicy: "OnTraffic", shutdownTime: "2030-01-01T00:00:00Z" });
  const { engine } = stage;
  await stage.source.snapshot({ name: "before" });
  const made = await Sandbox.create({ engine, name: "again", fromSnapshot: "before", ttlMs: 60_000 });
  const { spec } = await made.object();
  expect(spec).toMatchObject({
    wakePolicy: "OnTraffic",
    restoreFrom: { snapshotName: "before" },
    podTemplate: { spec: { containers: [{ name: "main", image: "python:3" }] } },
  });
  expect(spec.shutdownTime).not.toBe("2030-01-01T00:00:00Z");
});

test("create: from a snapshot with half of what runs, or of a sandbox that is gone, is refused", async () => {
  await using stage = await open();
  const { engine } = stage;
  await stage.source.snapshot({ name: "before" });
  const create = (options: object) => Sandbox.create({ engine, name: "again", fromSnapshot: "before", ...options });
  await expect(create({ cpu: 2 })).rejects.toMatchObject({ code: "invalid-argument" });
  await stage.api.client.delete(sandboxes, at("source"));
  await expect(create({})).rejects.toMatchObject({
    code: "invalid-argument",
    message: expect.stringContaining("'source' of snapshot 'before' is gone"),
  });
  const { spec } = await (await create({ image: "python:3", cpu: 2 })).object();
  expect(spec).toMatchObject({ restoreFrom: { snapshotName: "before" } });
  await expect(Sandbox.create({ engine, fromSnapshot: "absent" })).rejects.toMatchObject({ code: "not-found" });
});
