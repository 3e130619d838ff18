import { expect, test } from "vitest";
import { CliError } from "./cli-error.ts";
import { parseDurationMs } from "./duration.ts";
import { parsePairs } from "./name-value.ts";
import { parseSide } from "./verbs/cp.ts";
import { readTarget, readTargets } from "./verbs/get.ts";
import { parsePortPair } from "./verbs/port-forward.ts";

test("parseDurationMs: units add up, and a number alone is seconds", () => {
  expect(["30s", "1h30m", "250ms", "90", "1.5m"].map((text) => parseDurationMs("--ttl", text))).toEqual([
    30_000, 5_400_000, 250, 90_000, 90_000,
  ]);
});

test("parseDurationMs: anything else names the flag", () => {
  for (const text of ["", "0", "5 m", "m", "1h-3m"]) expect(() => parseDurationMs("--ttl", text)).toThrow("--ttl");
});

test("parsePairs: a name alone takes this shell's value", () => {
  expect(parsePairs("--env", ["A=1=2", "B", "C", "D="], { B: "b" })).toEqual({ A: "1=2", B: "b", D: "" });
});

test("parsePairs: labels need a value", () => {
  expect(() => parsePairs("--label", ["a"])).toThrow(CliError);
});

test("parseSide: only NAME:PATH is a sandbox", () => {
  expect(parseSide("dev:/work")).toEqual({ sandbox: "dev", path: "/work" });
  expect(parseSide("dev:")).toEqual({ sandbox: "dev", path: "." });
  expect(parseSide("./a:b")).toEqual({ path: "./a:b" });
  expect(parseSide("file")).toEqual({ path: "file" });
});

test("parsePortPair: one number is both ends", () => {
  expect([parsePortPair("80"), parsePortPair("8000:80"), parsePortPair(":80")]).toEqual([
    { local: 80, remote: 80 },
    { local: 8000, remote: 80 },
    { local: 0, remote: 80 },
  ]);
  expect(() => parsePortPair("99999")).toThrow("not a port");
});

test("readTarget: kinds by any of their words, names alone are sandboxes", () => {
  const read = (...args: string[]): unknown => {
    const { kind, names } = readTarget(args);
    return [kind.resource.kind, ...names];
  };
  expect(read()).toEqual(["Sandbox"]);
  expect(read("pools")).toEqual(["SandboxWarmPool"]);
  expect(read("claim", "x")).toEqual(["SandboxClaim", "x"]);
  expect(read("template/x")).toEqual(["SandboxTemplate", "x"]);
  expect(read("dev")).toEqual(["Sandbox", "dev"]);
});

test("readTarget: a mistyped kind before a name is guessed", () => {
  expect(() => readTarget(["tempalte", "x"])).toThrow("did you mean 'template'");
});

test("readTargets: several kinds as kubectl takes them, and all", () => {
  const read = (...args: string[]): unknown[] =>
    readTargets(args).map(({ kind, names }) => [kind.resource.resource, ...names]);
  expect(read("sandboxes,pods")).toEqual([["sandboxes"], ["pods"]]);
  expect(read("sb,po", "dev")).toEqual([
    ["sandboxes", "dev"],
    ["pods", "dev"],
  ]);
  expect(read("pod/a", "svc/b")).toEqual([
    ["pods", "a"],
    ["services", "b"],
  ]);
  expect(read("all").flat()).toEqual([
    "sandboxes",
    "sandboxclaims",
    "sandboxwarmpools",
    "sandboxtemplates",
    "pods",
    "services",
    "persistentvolumeclaims",
  ]);
  expect(read("pools")).toEqual([["sandboxwarmpools"]]);
  expect(read("dev")).toEqual([["sandboxes", "dev"]]);
  expect(() => read("sandboxes,podz")).toThrow("no such kind 'podz'");
});
