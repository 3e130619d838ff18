import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type Pod, pods } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { findPrograms } from "../../packages/server/src/main/programs.ts";
import { makeArchive, makeImage, type TestImage } from "../../packages/server/src/node/images/testing/test-image.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { RealEngine, until } from "./real-engine.ts";
import { RegistryServers, registryPorts } from "./registry-server.ts";

let engine: RealEngine;
let registry: RegistryServers;
let work: string;

beforeAll(async () => {
  work = mkdtempSync("/tmp/as-collection-");
  // The engine's unprivileged processes pass through here.
  chmodSync(work, 0o711);
  // A disk that is always too full, and images that may go as soon as no pod uses them.
  const marks = ["--image-gc-high-threshold", "1", "--image-gc-low-threshold", "0"];
  engine = await RealEngine.open(...marks, "--minimum-image-ttl-duration", "3s");
  registry = await RegistryServers.open(engine.place, work);
});

afterAll(async () => {
  registry[Symbol.dispose]();
  await engine[Symbol.asyncDispose]();
  rmSync(work, { recursive: true, force: true });
});

/** An image whose last layer is its own. */
function appImage(mark: string): Promise<TestImage> {
  const program = readFileSync(findPrograms().sandboxd);
  const command = { Entrypoint: ["/app/tool"], Cmd: ["serve", "--listen=127.0.0.1:4000"] };
  return makeImage([{ "app/tool": program }, { [`app/${mark}`]: mark }], command);
}

const at = (image: string): string => `127.0.0.1:${registryPorts.plain}/${image}`;

function image(...args: readonly string[]): string {
  const main = path.join(rootDir, "packages/cli/src/main.ts");
  const program = [process.execPath, "--disable-warning=ExperimentalWarning", main];
  return engine.place.must(...program, "image", ...args, "--data-dir", engine.dataDir);
}

function images(): string[] {
  const names = image("ls", "-o", "name").split("\n");
  return names.filter((name) => name !== "" && name !== "host");
}

/** Layers as the helper unpacked them; each has a file beside it that says what it is. */
const layers = (): string[] =>
  readdirSync(path.join(engine.hostDir, "layers")).filter((name) => !name.endsWith(".json"));

async function start(name: string, image: string): Promise<Pod> {
  const pod: Pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default" },
    spec: { terminationGracePeriodSeconds: 1, containers: [{ name: "main", image }] },
  };
  await engine.client.create(pods, pod);
  return engine.readyPod(name);
}

test("image collection: on a full disk unused images and their layers go, used and loaded ones stay", async () => {
  await registry.push("team/used", "1", await appImage("used"));
  await registry.push("team/idle", "1", await appImage("idle"));
  const archive = path.join(work, "loaded.tar");
  writeFileSync(archive, await makeArchive("example.test/loaded:1", await appImage("loaded")));
  image("load", archive);
  await start("user", at("team/used:1"));
  await start("visitor", at("team/idle:1"));
  expect(images().toSorted()).toEqual([at("team/idle:1"), at("team/used:1"), "example.test/loaded:1"]);
  const all = layers();
  await engine.removePod("visitor");
  await until(() => images().length === 2, 60_000);
  expect(images().toSorted()).toEqual([at("team/used:1"), "example.test/loaded:1"]);
  // The shared layer is still somebody's; the one of its own has gone from the disk.
  await until(() => layers().length === all.length - 1, 20_000);
  expect((await engine.run("user", ["/app/tool", "--version"])).stdout).toContain("version");
});

test("image collection: an image that went is pulled again, and one goes once its last pod has", async () => {
  await start("returning", at("team/idle:1"));
  expect(images()).toContain(at("team/idle:1"));
  await Promise.all([engine.removePod("returning"), engine.removePod("user")]);
  await until(() => images().length === 1, 60_000);
  expect(images()).toEqual(["example.test/loaded:1"]);
});
