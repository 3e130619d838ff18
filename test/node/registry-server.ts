import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { TestImage } from "../../packages/server/src/node/images/testing/test-image.ts";
import { rootDir } from "../../scripts/checkout.ts";
import type { TestNamespace } from "./namespace.ts";
import type { GuardOptions } from "./registry-guard.ts";

/** Where the same content is served in different ways; all on the loopback of the engine's namespace. */
export const registryPorts = { plain: 5000, basic: 5001, bearer: 5002, token: 5003, cutter: 5004 } as const;

/** The account of the registries that want one. */
export const account = { user: "puller", password: "correct horse" } as const;

/** The password as `htpasswd -B` writes it, at the lowest cost. */
const passwordHash = "$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2";

/** A blob this large is cut and served slowly by the cutter. */
export const largeBytes = 1_000_000;

/** The real registry of Debian's package, as three servers over one store. */
export class RegistryServers implements Disposable {
  readonly #place: TestNamespace;
  readonly #dir: string;
  readonly #children: ChildProcess[] = [];
  /** What the cutter was asked for. */
  cutterLog = "";
  #doorUrl = "";

  private constructor(place: TestNamespace, dir: string) {
    this.#place = place;
    this.#dir = dir;
  }

  static async open(place: TestNamespace, dir: string): Promise<RegistryServers> {
    const servers = new RegistryServers(place, dir);
    mkdirSync(path.join(dir, "store"), { recursive: true });
    servers.#makeSecrets();
    const tls = `  tls:\n    certificate: ${servers.certFile}\n    key: ${servers.keyFile}\n`;
    const token = `auth:\n  token:\n    realm: http://127.0.0.1:${registryPorts.token}/token\n    service: real\n    issuer: guard\n    rootcertbundle: ${servers.certFile}\n`;
    const basic = `auth:\n  htpasswd:\n    realm: real\n    path: ${path.join(dir, "htpasswd")}\n`;
    servers.#startRegistry("plain", "");
    servers.#startRegistry("basic", basic, tls);
    servers.#startRegistry("bearer", token);
    await servers.#startGuard();
    const door = await place.openDoor(registryPorts.plain, path.join(dir, "door.sock"));
    servers.#doorUrl = `http://127.0.0.1:${door}`;
    await servers.#untilAnswering();
    return servers;
  }

  get certFile(): string {
    return path.join(this.#dir, "tls.crt");
  }

  get keyFile(): string {
    return path.join(this.#dir, "tls.key");
  }

  /** Where the plain registry keeps a blob. */
  blobFile(digest: string): string {
    const hex = digest.slice("sha256:".length);
    return path.join(this.#dir, "store/docker/registry/v2/blobs/sha256", hex.slice(0, 2), hex, "data");
  }

  /** Pushes an image, and an index over several if there is more than one platform. */
  async push(repository: string, tag: string, image: TestImage): Promise<void> {
    for (const [digest, bytes] of image.blobs) {
      if (digest === image.manifestDigest) continue;
      const begun = await this.#send("POST", `/v2/${repository}/blobs/uploads/`);
      const location = new URL(begun.headers.get("location") ?? "", this.#doorUrl);
      location.searchParams.set("digest", digest);
      await this.#send("PUT", `${location.pathname}${location.search}`, bytes, "application/octet-stream");
    }
    const manifest = image.blobs.get(image.manifestDigest) ?? Buffer.alloc(0);
    const type = "application/vnd.oci.image.manifest.v1+json";
    await this.#send("PUT", `/v2/${repository}/manifests/${tag}`, manifest, type);
  }

  /** Pushes an index of images that are there already, by architecture. */
  async pushIndex(repository: string, tag: string, images: Readonly<Record<string, TestImage>>): Promise<void> {
    const type = "application/vnd.oci.image.index.v1+json";
    const manifests = Object.entries(images).map(([architecture, { manifestDigest, blobs }]) => ({
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      digest: manifestDigest,
      size: blobs.get(manifestDigest)?.length ?? 0,
      platform: { os: "linux", architecture },
    }));
    const body = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: type, manifests }));
    await this.#send("PUT", `/v2/${repository}/manifests/${tag}`, body, type);
  }

  [Symbol.dispose](): void {
    for (const child of this.#children) child.kill("SIGKILL");
  }

  async #send(method: string, target: string, body?: Buffer, type?: string): Promise<Response> {
    const headers = type === undefined ? {} : { "content-type": type };
    const response = await fetch(`${this.#doorUrl}${target}`, {
      method,
      headers,
      ...(body !== undefined && { body: new Uint8Array(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${target}: ${response.status} ${await response.text()}`);
    return response;
  }

  #makeSecrets(): void {
    const { certFile, keyFile } = this;
    const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=guard"];
    const names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", keyFile, "-out", certFile];
    const made = spawnSync("openssl", ["req", "-x509", ...kind, ...names], { encoding: "utf8" });
    if (made.status !== 0) throw new Error(made.stderr);
    writeFileSync(path.join(this.#dir, "htpasswd"), `${account.user}:${passwordHash}\n`);
  }

  #startRegistry(name: "plain" | "basic" | "bearer", auth: string, tls = ""): void {
    const config = path.join(this.#dir, `${name}.yml`);
    const store = path.join(this.#dir, "store");
    const http = `http:\n  addr: 127.0.0.1:${registryPorts[name]}\n  secret: shared\n${tls}`;
    writeFileSync(
      config,
      `version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: ${store}}}\n${http}${auth}`,
    );
    const record = path.join(rootDir, "node_modules/.agent-sandbox/servers");
    const program = path.join(readFileSync(record, "utf8"), "usr/bin/docker-registry");
    const [file, args] = this.#place.inside(program, "serve", config);
    this.#children.push(spawn(file, args, { stdio: ["ignore", "ignore", "inherit"] }));
  }

  async #startGuard(): Promise<void> {
    const options: GuardOptions = {
      registryPort: registryPorts.plain,
      tokenPort: registryPorts.token,
      cutterPort: registryPorts.cutter,
      keyFile: this.keyFile,
      certFile: this.certFile,
      ...account,
      largeBytes,
    };
    const script = path.join(import.meta.dirname, "registry-guard.ts");
    const [file, args] = this.#place.inside(process.execPath, script, JSON.stringify(options));
    const child = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#children.push(child);
    child.stdout?.setEncoding("utf8").on("data", (text: string) => (this.cutterLog += text));
    await once(child.stdout as NonNullable<typeof child.stdout>, "data");
  }

  async #untilAnswering(): Promise<void> {
    const signal = AbortSignal.timeout(60_000);
    for (const port of [registryPorts.plain, registryPorts.basic, registryPorts.bearer]) {
      while (!isOpen(this.#place, port)) {
        signal.throwIfAborted();
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  }
}

function isOpen(place: TestNamespace, port: number): boolean {
  return place.run(["sh", "-c", `ss -Hltn 'sport = :${port}' | grep -q .`]).status === 0;
}
