import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { parseRouterFlags, RouterConfigError } from "./router-flags.ts";

function fileWith(text: string): string {
  const file = path.join(mkdtempSync(path.join(tmpdir(), "router-flags-")), "router.yaml");
  writeFileSync(file, text);
  return file;
}

test("parseRouterFlags: the reference's defaults, and access closed", () => {
  expect(parseRouterFlags([], {})).toMatchObject({
    "http-bind-address": ":8080",
    "https-bind-address": "",
    "metrics-bind-address": ":9090",
    "health-probe-bind-address": ":8081",
    "proxy-timeout": 180_000,
    "upstream-max-retries": 3,
    "authz-mode": "access-review",
    "authz-tokenreview-ttl": 30_000,
    "access-log": true,
    "insecure-listen": "",
  });
});

test("parseRouterFlags: command line over file over environment over defaults", () => {
  const file = fileWith("proxy-timeout: 60s\ncluster-domain: file.local\nupstream-max-retries: 5\n");
  const environment = { PROXY_TIMEOUT_SECONDS: "30.5", CLUSTER_DOMAIN: "env.local", KUBECONFIG: "/k" };
  expect(parseRouterFlags([], environment)).toMatchObject({
    "proxy-timeout": 30_500,
    "cluster-domain": "env.local",
    kubeconfig: "/k",
  });
  expect(parseRouterFlags(["--config", file], environment)).toMatchObject({
    "proxy-timeout": 60_000,
    "cluster-domain": "file.local",
    "upstream-max-retries": 5,
  });
  expect(parseRouterFlags(["-config", file, "-proxy-timeout=90s"], environment)["proxy-timeout"]).toBe(90_000);
});

test("parseRouterFlags: the file named on the command line beats the environment's", () => {
  const [first, second] = [fileWith("cluster-domain: a\n"), fileWith("cluster-domain: b\n")];
  expect(parseRouterFlags([], { SANDBOX_ROUTER_CONFIG: first })["cluster-domain"]).toBe("a");
  expect(parseRouterFlags(["--config", second], { SANDBOX_ROUTER_CONFIG: first })["cluster-domain"]).toBe("b");
});

test("parseRouterFlags: bad values of the environment are ignored", () => {
  for (const text of ["0", "-1", "soon", " "])
    expect(parseRouterFlags([], { PROXY_TIMEOUT_SECONDS: text })["proxy-timeout"]).toBe(180_000);
  expect(parseRouterFlags([], { CLUSTER_DOMAIN: "  " })["cluster-domain"]).toBe("cluster.local");
});

test("parseRouterFlags: an exporter's endpoint turns tracing on unless a flag says otherwise", () => {
  const environment = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4317" };
  expect(parseRouterFlags([], environment)["enable-tracing"]).toBe(true);
  expect(parseRouterFlags(["--enable-tracing=false"], environment)["enable-tracing"]).toBe(false);
  expect(parseRouterFlags([], { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: "x" })["enable-tracing"]).toBe(false);
});

test("parseRouterFlags: whole floats, nulls and booleans of a file", () => {
  const file = fileWith("upstream-max-retries: 2.0\nhttps-bind-address: null\naccess-log: false\n");
  expect(parseRouterFlags(["--config", file], {})).toMatchObject({
    "upstream-max-retries": 2,
    "https-bind-address": "",
    "access-log": false,
  });
});

const refused: readonly (readonly [string, readonly string[], string])[] = [
  ["an unknown flag", ["--nope"], "flag provided but not defined: -nope"],
  ["an argument", ["now"], 'unexpected argument "now"'],
  ["no proxy listener", ["--http-bind-address="], "one of --http-bind-address and --https-bind-address is required"],
  [
    "TLS without files",
    ["--https-bind-address=:8443"],
    "--https-bind-address needs --tls-cert-file and --tls-key-file",
  ],
  ["an unknown mTLS mode", ["--mtls-mode=maybe"], '--mtls-mode "maybe" is not off, optional or required'],
  ["mTLS without TLS", ["--mtls-mode=required"], "--mtls-mode needs --https-bind-address"],
  ["a proxy timeout of zero", ["--proxy-timeout=0s"], "--proxy-timeout must be greater than 0"],
  ["a negative shutdown timeout", ["--shutdown-timeout=-1s"], "--shutdown-timeout must not be negative"],
  ["negative retries", ["--upstream-max-retries=-1"], "--upstream-max-retries must not be negative"],
  ["an empty cluster domain", ["--cluster-domain="], "--cluster-domain must not be empty"],
  ["an unknown access mode", ["--authz-mode=open"], '--authz-mode "open" is not'],
  ["a review cache of zero, in every mode", ["--authz-tokenreview-cache-size=0"], "must be greater than 0"],
  ["scoped tokens without a key", ["--authz-mode=scoped-token"], "needs --authz-scoped-token-secret-file"],
  ["an open insecure listener", ["--insecure-listen=0.0.0.0:7081"], "must be a loopback address"],
  ["an insecure listener on all interfaces", ["--insecure-listen=:7081"], "must be a loopback address"],
  ["a prefix with a slash at its end", ["--path-routing-prefix=/a/"], "must start with a slash"],
  ["a missing file", ["--config=/nonexistent/router.yaml"], "ENOENT"],
];

test.each(refused)("parseRouterFlags: refuses %s", (_name, args, text) => {
  expect(() => parseRouterFlags(args, {})).toThrow(text);
  expect(() => parseRouterFlags(args, {})).toThrow(RouterConfigError);
});

test.each([
  ["unknown keys", "prox-timeout: 1s\n", 'unknown key "prox-timeout"'],
  ["nested values", "proxy-timeout:\n  a: 1\n", '"proxy-timeout" must be a single value'],
  ["lists", "- a\n", "expected a map of flags"],
  ["broken YAML", "a: [\n", "config file"],
  ["fractions of retries", "upstream-max-retries: 2.5\n", "invalid value"],
])("parseRouterFlags: refuses a file with %s", (_name, text, expected) => {
  expect(() => parseRouterFlags(["--config", fileWith(text)], {})).toThrow(expected);
});
