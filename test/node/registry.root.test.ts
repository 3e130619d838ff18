import { createHash, randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { coreEvents, type Pod, pods, type Secret, secrets } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { findPrograms } from "../../packages/server/src/main/programs.ts";
import {
  makeArchive,
  makeImage,
  makeTar,
  type TestImage,
  writeLayout,
} from "../../packages/server/src/node/images/testing/test-image.ts";
import { rootDir } from "../../scripts/checkout.ts";
import type { Finished } from "./namespace.ts";
import { RealEngine } from "./real-engine.ts";
import { account, largeBytes, RegistryServers, registryPorts } from "./registry-server.ts";

let engine: RealEngine;
let registry: RegistryServers;
let work: string;
let program: Buffer;

/** A program that needs nothing else in its image; all images of this suite run it until they are stopped. */
const command = { Entrypoint: ["/app/tool"], Cmd: ["serve", "--listen=127.0.0.1:4000"] };

beforeAll(async () => {
  work = mkdtempSync("/tmp/as-registry-");
  // The engine's unprivileged processes pass through here.
  chmodSync(work, 0o711);
  program = readFileSync(findPrograms().sandboxd);
  engine = await RealEngine.open();
  registry = await RegistryServers.open(engine.place, work);
});

afterAll(async () => {
  registry[Symbol.dispose]();
  await engine[Symbol.asyncDispose]();
  rmSync(work, { recursive: true, force: true });
});

/** An image with the program, and a layer that tells it from others. */
function appImage(mark: string, ...layers: Readonly<Record<string, Buffer>>[]): Promise<TestImage> {
  return makeImage([{ "app/tool": program }, { "app/mark": mark }, ...layers], command);
}

function at(port: keyof typeof registryPorts, image: string): string {
  return `127.0.0.1:${registryPorts[port]}/${image}`;
}

function cli(...args: readonly string[]): Finished {
  const main = path.join(rootDir, "packages/cli/src/main.ts");
  return engine.place.run([process.execPath, "--disable-warning=ExperimentalWarning", main, ...args]);
}

const here = (): string[] => ["--data-dir", engine.dataDir];

/** The operator's files are read for every pull. */
function configure(name: "registries.json" | "docker-config.json", content: unknown): void {
  writeFileSync(path.join(engine.dataDir, name), JSON.stringify(content), { mode: 0o644 });
}

function dockerConfig(host: string): object {
  return { auths: { [host]: { auth: Buffer.from(`${account.user}:${account.password}`).toString("base64") } } };
}

async function startApp(name: string, image: string, spec: Partial<NonNullable<Pod["spec"]>> = {}): Promise<void> {
  const pod: Pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default" },
    spec: { restartPolicy: "Never", containers: [{ name: "main", image, args: ["--version"] }], ...spec },
  };
  await engine.client.create(pods, pod);
}

/** Resolves once the pod has run to its end; throws with its status otherwise. */
async function succeeded(name: string): Promise<Pod> {
  const ended = ({ status }: Pod): boolean => status?.phase === "Succeeded" || status?.phase === "Failed";
  const pod = await engine.podWhere(name, ended);
  expect(pod.status?.phase, JSON.stringify(pod.status)).toBe("Succeeded");
  return pod;
}

const waitingFor = ({ status }: Pod): string | undefined => status?.containerStatuses?.[0]?.state?.waiting?.reason;

test("registry platforms: the variant of this machine is chosen, and where there is none the reason is told", async () => {
  const [mine, other] = await Promise.all([appImage("mine"), appImage("other")]);
  const arch = process.arch === "x64" ? "amd64" : process.arch;
  await registry.push("team/app", "mine", mine);
  await registry.push("team/app", "other", other);
  await registry.pushIndex("team/app", "both", { s390x: other, [arch]: mine });
  await registry.pushIndex("team/app", "foreign", { s390x: other });
  await startApp("both", at("plain", "team/app:both"));
  await startApp("foreign", at("plain", "team/app:foreign"));
  await succeeded("both");
  const images = JSON.parse(cli("image", "ls", "-o", "json", ...here()).stdout) as {
    name: string;
    layers: { digest: string }[];
  }[];
  expect(images.find(({ name }) => name.endsWith(":both"))?.layers.map(({ digest }) => digest)).toEqual(
    mine.layerDigests,
  );
  const refused = await engine.podWhere("foreign", (pod) => waitingFor(pod) === "ImagePullBackOff");
  expect(refused.status?.containerStatuses?.[0]?.state?.waiting?.message).toContain(`no linux/${arch} variant`);
});

test("registry basic: over HTTPS, by a mirror, with the pod's imagePullSecret and not without it", async () => {
  await registry.push("private/app", "1", await appImage("private"));
  const mirror = `127.0.0.1:${registryPorts.basic}`;
  configure("registries.json", { mirrors: { "private.test": [`https://${mirror}`] }, caFiles: [registry.certFile] });
  const secret: Secret = {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "pull", namespace: "default" },
    type: "kubernetes.io/dockerconfigjson",
    data: { ".dockerconfigjson": Buffer.from(JSON.stringify(dockerConfig(mirror))).toString("base64") },
  };
  await engine.client.create(secrets, secret);
  await startApp("stranger", "private.test/private/app:1");
  const refused = await engine.podWhere("stranger", (pod) => waitingFor(pod)?.includes("Image") === true);
  expect(refused.status?.containerStatuses?.[0]?.state?.waiting?.message).toContain("wants credentials");
  await startApp("member", "private.test/private/app:1", { imagePullSecrets: [{ name: "pull" }] });
  await succeeded("member");
});

test("registry unreachable: the Pod's event and a pull say which host, what failed and what to do", async () => {
  const words =
    "cannot reach http://127.0.0.1:5998: nothing listens there (ECONNREFUSED); check that the registry runs";
  expect(cli("image", "pull", "127.0.0.1:5998/a/b:1", ...here())).toMatchObject({
    status: 1,
    stderr: expect.stringContaining(words) as string,
  });
  await startApp("cut-off", "127.0.0.1:5998/a/b:1");
  await engine.podWhere("cut-off", (pod) => waitingFor(pod)?.includes("Image") === true);
  const messages = async (): Promise<string[]> => {
    const { items } = await engine.client.list(coreEvents, { namespace: "default" });
    return items.filter(({ reason }) => reason === "Failed").map(({ message = "" }) => message);
  };
  await expect.poll(messages).toContainEqual(expect.stringContaining(words));
});

test("registry bearer: a token is fetched with the node's docker config", async () => {
  await registry.push("guarded/app", "1", await appImage("guarded"));
  const reference = at("bearer", "guarded/app:1");
  expect(cli("image", "pull", reference, ...here())).toMatchObject({ status: 1 });
  configure("docker-config.json", dockerConfig(`127.0.0.1:${registryPorts.bearer}`));
  expect(cli("image", "pull", reference, ...here())).toMatchObject({ status: 0, stdout: `${reference}\n` });
});

test("registry digests: a blob that was changed is refused, and taken once it is whole again", async () => {
  const image = await appImage("changed");
  await registry.push("changed/app", "1", image);
  const file = registry.blobFile(image.layerDigests[1] ?? "");
  const whole = readFileSync(file);
  const changed = Buffer.from(whole);
  changed[whole.length - 1] = (whole.at(-1) ?? 0) ^ 1;
  writeFileSync(file, changed);
  const reference = at("plain", "changed/app:1");
  const refused = cli("image", "pull", reference, ...here());
  expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining("has the digest")]);
  writeFileSync(file, whole);
  expect(cli("image", "pull", reference, ...here()).status).toBe(0);
});

test("registry transfers: broken layers are continued, layers come side by side, and the Pod tells how far it is", async () => {
  const layers = ["a", "b", "c"].map((name) => ({ [`app/${name}`]: randomBytes(2 * largeBytes) }));
  await registry.push("large/app", "1", await makeImage([{ "app/tool": program }, ...layers], command));
  await startApp("large", at("cutter", "large/app:1"));
  const pod = await succeeded("large");
  const asked = registry.cutterLog.split("\n").filter((line) => line.startsWith("blob"));
  expect(asked.filter((line) => line.includes("range=bytes=")).length).toBeGreaterThanOrEqual(3);
  expect(asked.some((line) => /at-once=[34] /.test(line))).toBe(true);
  const events = await engine.client.list(coreEvents, {
    namespace: "default",
    fieldSelector: `involvedObject.uid=${pod.metadata.uid ?? ""}`,
  });
  const reasons = events.items.map(({ reason }) => reason);
  expect(reasons).toEqual(expect.arrayContaining(["Pulling", "PullProgress", "Pulled"]));
  expect(events.items.find(({ reason }) => reason === "PullProgress")?.message).toMatch(
    /: (25|[3-9]\d)% \(\d+ of \d+ bytes\)/,
  );
});

test("cli image: archives of both kinds and a layout are loaded, run, listed and removed, but not under a running sandbox", async () => {
  const oci = path.join(work, "oci.tar");
  writeFileSync(oci, await makeArchive("example.test/oci:1", await appImage("oci")));
  const layout = path.join(work, "layout");
  await writeLayout(layout, "example.test/layout:1", await appImage("layout"));
  const docker = path.join(work, "docker.tar");
  writeFileSync(docker, await dockerArchive("example.test/docker:1"));
  for (const [file, name] of [
    [oci, "example.test/oci:1"],
    [docker, "example.test/docker:1"],
    [layout, "example.test/layout:1"],
  ] as const) {
    expect(cli("image", "load", file, ...here())).toMatchObject({ status: 0, stdout: `${name}\n` });
    expect(engine.cli("run", "--image", name, "--", "/app/tool", "--version")).toContain("version");
  }
  expect(engine.cli("run", "--image", at("plain", "team/app:both"), "--", "/app/tool", "--version")).toContain(
    "version",
  );
  await startApp("user", "", { containers: [{ name: "main", image: "example.test/oci:1" }] });
  await engine.readyPod("user");
  const refused = cli("image", "rm", "example.test/oci:1", ...here());
  expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining("in use by pod default/user")]);
  await engine.removePod("user");
  for (const name of ["oci", "docker", "layout"])
    expect(cli("image", "rm", `example.test/${name}:1`, ...here()).status).toBe(0);
  expect(cli("image", "ls", "-o", "name", ...here()).stdout).not.toContain("example.test");
});

/** What `docker save` writes. */
async function dockerArchive(name: string): Promise<Buffer> {
  const layer = await makeTar({ "app/tool": program });
  const diffId = `sha256:${createHash("sha256").update(layer).digest("hex")}`;
  const config = {
    architecture: "amd64",
    os: "linux",
    config: command,
    rootfs: { type: "layers", diff_ids: [diffId] },
  };
  return makeTar({
    "config.json": JSON.stringify(config),
    "layer/layer.tar": layer,
    "manifest.json": JSON.stringify([{ Config: "config.json", RepoTags: [name], Layers: ["layer/layer.tar"] }]),
  });
}
