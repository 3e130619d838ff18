import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { createMetricsRegistry } from "../../telemetry/metrics.ts";
import { aSandbox } from "../testing/builders.ts";
import { readCertificateFiles } from "./certificate-files.ts";
import { answerReview } from "./conversion-webhook.ts";
import { openHealthServers, parseBindAddress } from "./health-server.ts";

const review = (objects: ReturnType<typeof aSandbox>[], desiredAPIVersion = "agents.x-k8s.io/v1alpha1") => ({
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "ConversionReview",
  request: { uid: "u", desiredAPIVersion, objects },
});

describe("answerReview", () => {
  test("answerReview: converts in order and echoes the uid", () => {
    const answer = answerReview(
      review([aSandbox({ name: "a" }), aSandbox({ name: "b", spec: { operatingMode: "Suspended" } })]),
      () => undefined,
    );
    expect(answer?.response).toMatchObject({
      uid: "u",
      result: { status: "Success" },
      convertedObjects: [{ spec: { replicas: 1 } }, { spec: { replicas: 0 } }],
    });
  });
  test("answerReview: one bad object fails the whole batch and is counted", () => {
    let panics = 0;
    const answer = answerReview(
      review([aSandbox(), { ...aSandbox(), kind: "Other" as "Sandbox" }]),
      () => (panics += 1),
    );
    expect(answer?.response.result.status).toBe("Failure");
    expect(answer?.response.convertedObjects).toBeUndefined();
    expect(panics).toBe(1);
  });
  test("answerReview: nothing asked, nothing answered", () => {
    expect(answerReview({ apiVersion: "x", kind: "ConversionReview" }, () => undefined)).toBeUndefined();
  });
});

describe("readCertificateFiles", () => {
  const made: string[] = [];
  afterEach(async () => {
    for (const directory of made.splice(0)) await rm(directory, { recursive: true });
  });
  const open = async (...files: string[]) => {
    const directory = await mkdtemp(path.join(tmpdir(), "webhook-"));
    made.push(directory);
    for (const file of files) await writeFile(path.join(directory, file), file);
    return directory;
  };
  const read = (directory: string, names: [string, string] = ["tls.crt", "tls.key"]) =>
    readCertificateFiles({
      "webhook-cert-dir": directory,
      "webhook-cert-name": names[0],
      "webhook-key-name": names[1],
    });
  test("readCertificateFiles: K5 both files, or one combined where the default names are absent", async () => {
    expect(await read(await open("tls.crt", "tls.key"))).toEqual({
      certificatePem: "tls.crt",
      privateKeyPem: "tls.key",
    });
    expect(await read(await open("cert.pem"))).toEqual({ certificatePem: "cert.pem", privateKeyPem: "cert.pem" });
  });
  test("readCertificateFiles: no fallback for one missing file, for other names, or for a directory", async () => {
    await expect(read(await open("tls.crt", "cert.pem"))).rejects.toThrow("tls.key is missing");
    await expect(read(await open("cert.pem"), ["a.crt", "a.key"])).rejects.toThrow("a.crt is missing");
    const directory = await open("tls.key");
    await expect(read(directory, [".", "tls.key"])).rejects.toThrow("is not a file");
  });
});

describe("openHealthServers", () => {
  test("openHealthServers: readiness waits for every part, health does not", async () => {
    let synced = false;
    const registry = createMetricsRegistry();
    await using servers = await openHealthServers({
      metricsAddress: "127.0.0.1:0",
      healthAddress: "127.0.0.1:0",
      registry,
      checks: { caches: () => synced },
    });
    const ask = async (port: number, route: string) => (await fetch(`http://127.0.0.1:${port}${route}`)).status;
    expect(await ask(servers.healthPort, "/healthz")).toBe(200);
    expect(await ask(servers.healthPort, "/readyz")).toBe(503);
    synced = true;
    expect(await ask(servers.healthPort, "/readyz")).toBe(200);
    expect(await ask(servers.metricsPort, "/metrics")).toBe(200);
    expect(await ask(servers.metricsPort, "/debug/pprof")).toBe(404);
  });
  test("parseBindAddress: host, all interfaces, off, nonsense", () => {
    expect(parseBindAddress(":8080")).toEqual({ port: 8080 });
    expect(parseBindAddress("[::1]:1")).toEqual({ host: "::1", port: 1 });
    expect(parseBindAddress("0")).toBeUndefined();
    expect(() => parseBindAddress("8080")).toThrow("is not host:port");
  });
});
