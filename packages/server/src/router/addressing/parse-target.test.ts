import { expect, test } from "vitest";
import { RoutingError } from "../routing-error.ts";
import { parseTarget } from "./parse-target.ts";

const options = { hostDomain: "sandbox.localhost", pathPrefix: "/sandboxes", allowLoopbackPodIp: false };

const refused: readonly (readonly [string, string, Record<string, string>, string])[] = [
  ["no id", "/x", {}, "X-Sandbox-ID header is required."],
  ["bad id", "/x", { "x-sandbox-id": "A_b" }, "Invalid sandbox ID format."],
  ["id of 64", "/x", { "x-sandbox-id": "a".repeat(64) }, "Invalid sandbox ID format."],
  ["bad namespace", "/x", { "x-sandbox-id": "a", "x-sandbox-namespace": "-x" }, "Invalid namespace format."],
  ["bad port", "/x", { "x-sandbox-id": "a", "x-sandbox-port": "65536" }, "Invalid port format."],
  ["port zero", "/x", { "x-sandbox-id": "a", "x-sandbox-port": "0" }, "Invalid port format."],
  ["pod ip with port", "/x", { "x-sandbox-id": "a", "x-sandbox-pod-ip": "10.0.0.1:80" }, "Invalid target IP address."],
  [
    "metadata pod ip",
    "/x",
    { "x-sandbox-id": "a", "x-sandbox-pod-ip": "169.254.169.254" },
    "Invalid target IP address.",
  ],
  ["loopback pod ip", "/x", { "x-sandbox-id": "a", "x-sandbox-pod-ip": "127.0.0.1" }, "Invalid target IP address."],
  [
    "short path",
    "/sandboxes/ns/box",
    { "x-sandbox-id": "a" },
    "Invalid path; expected /sandboxes/<namespace>/<sandbox>/<port>/...",
  ],
  [
    "bad host",
    "/x",
    { host: "box.ns.sandbox.localhost:7080", "x-sandbox-id": "a" },
    "Invalid host name; expected <port>-<sandbox>.<namespace>.<domain>",
  ],
];

test.each(refused)("parseTarget: refuses %s", (_name, path, headers, detail) => {
  expect(() => parseTarget(path, headers, options)).toThrow(new RoutingError(400, detail));
});

test("parseTarget: headers: defaults and hints", () => {
  const headers = {
    "x-sandbox-id": "box",
    "x-sandbox-pod-ip": "10.200.0.5",
    "x-sandbox-timeout": "1.5",
    "x-sandbox-uid": "u",
  };
  expect(parseTarget("/execute", headers, options)).toEqual({
    form: "header",
    namespace: "default",
    name: "box",
    port: 8888,
    path: "/execute",
    pathPrefix: "",
    podIp: "10.200.0.5",
    uid: "u",
    timeoutMs: 1500,
  });
});

test("parseTarget: headers: leading plus and zeros of a port are read as Go reads them", () => {
  expect(parseTarget("/", { "x-sandbox-id": "a", "x-sandbox-port": "+008080" }, options).port).toBe(8080);
});

test("parseTarget: path: keeps the raw rest, encoded slashes and dots included", () => {
  const target = parseTarget("/sandboxes/ns/box/8080/v1/files/%2Fa/..%2F//./b?x=%20", {}, options);
  expect(target).toMatchObject({ namespace: "ns", name: "box", port: 8080, path: "/v1/files/%2Fa/..%2F//./b?x=%20" });
  expect(target.pathPrefix).toBe("/sandboxes/ns/box/8080");
});

test("parseTarget: path: a query right behind the port belongs to the root", () => {
  expect(parseTarget("/sandboxes/ns/box/80?a=1", {}, options).path).toBe("/?a=1");
});

test("parseTarget: host: port, name with hyphens, namespace", () => {
  const target = parseTarget("/a%2Fb", { host: "3000-my-box.team-a.sandbox.localhost:7080" }, options);
  expect(target).toMatchObject({ form: "host", namespace: "team-a", name: "my-box", port: 3000, path: "/a%2Fb" });
});
