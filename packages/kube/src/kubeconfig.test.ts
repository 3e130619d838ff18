import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { loadInClusterCredentials } from "./in-cluster.ts";
import { loadKubeconfig } from "./kubeconfig.ts";
import { FakeClock } from "./testing/fake-clock.ts";

const directories: string[] = [];
afterEach(() => {
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true });
});

function write(files: Readonly<Record<string, string>>): string {
  const directory = mkdtempSync(join(tmpdir(), "kubeconfig-"));
  directories.push(directory);
  for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), content);
  return directory;
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");

const yaml = `
apiVersion: v1
kind: Config
current-context: one
contexts:
- name: one
  context: {cluster: c, user: certs, namespace: team}
- name: two
  context: {cluster: c, user: file}
- name: three
  context: {cluster: c, user: basic}
- name: four
  context: {cluster: c, user: plugin}
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: ${base64("CA")}, tls-server-name: kubernetes}
users:
- name: certs
  user: {client-certificate: cert.pem, client-key-data: ${base64("KEY")}}
- name: file
  user: {tokenFile: token}
- name: basic
  user: {username: u, password: p}
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: /bin/sh
      interactiveMode: Never
      args:
      - -c
      - >-
        echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-plugin"}}'
`;

function load(context?: string, clock = new FakeClock()) {
  const directory = write({ config: yaml, "cert.pem": "CERT", token: "first\n" });
  const loaded = loadKubeconfig({ path: join(directory, "config"), clock, ...(context !== undefined && { context }) });
  return loaded.then((result) => ({ ...result, directory }));
}

test("loadKubeconfig: certificates: inline and by file, relative to the kubeconfig", async () => {
  const { credentials, context, namespace } = await load();
  expect(credentials).toEqual({
    server: "https://10.0.0.1:6443",
    ca: "CA",
    serverName: "kubernetes",
    cert: "CERT",
    key: "KEY",
  });
  expect([context, namespace]).toEqual(["one", "team"]);
});

test("loadKubeconfig: a token file: is read again when a minute has passed", async () => {
  const clock = new FakeClock();
  const { credentials, directory } = await load("two", clock);
  expect(await credentials.authorize?.()).toEqual({ authorization: "Bearer first" });
  writeFileSync(join(directory, "token"), "second");
  expect(await credentials.authorize?.()).toEqual({ authorization: "Bearer first" });
  await clock.advance(60_000);
  expect(await credentials.authorize?.()).toEqual({ authorization: "Bearer second" });
});

test("loadKubeconfig: user name and password: become basic authentication", async () => {
  const { credentials } = await load("three");
  expect(await credentials.authorize?.()).toEqual({ authorization: `Basic ${base64("u:p")}` });
});

test("loadKubeconfig: an exec plugin: is run for its token", async () => {
  const { credentials } = await load("four");
  expect(await credentials.authorize?.()).toEqual({ authorization: "Bearer from-plugin" });
});

test("loadKubeconfig: JSON: needs no YAML", async () => {
  const config = {
    "current-context": "c",
    contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
    clusters: [{ name: "c", cluster: { server: "https://h", "insecure-skip-tls-verify": true } }],
    users: [{ name: "u", user: { token: "t" } }],
  };
  const directory = write({ config: JSON.stringify(config) });
  const { credentials } = await loadKubeconfig({ path: join(directory, "config"), clock: new FakeClock() });
  expect(credentials).toMatchObject({ server: "https://h", insecureSkipTlsVerify: true });
  expect(await credentials.authorize?.()).toEqual({ authorization: "Bearer t" });
});

test("loadKubeconfig: a context that is not there: says which file lacks what", async () => {
  await expect(load("five")).rejects.toThrow(/kubeconfig .*\/config has no context named "five"/);
});

test("loadInClusterCredentials: a pod's files: give server, authority and token", async () => {
  const directory = write({ "ca.crt": "CA", token: "pod-token\n" });
  const options = { host: "fd00::1", port: "443", clock: new FakeClock(), directory };
  const credentials = await loadInClusterCredentials(options);
  expect(credentials).toMatchObject({ server: "https://[fd00::1]:443", ca: "CA" });
  expect(await credentials.authorize?.()).toEqual({ authorization: "Bearer pod-token" });
});
