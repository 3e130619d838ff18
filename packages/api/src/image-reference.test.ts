import { expect, test } from "vitest";
import {
  formatImageReference,
  isHostImage,
  isImageReference,
  parseImageReference,
  splitImageReference,
} from "./image-reference.ts";

const digest = `sha256:${"a".repeat(64)}`;

test.each([
  ["alpine", "docker.io/library/alpine:latest"],
  ["alpine:3.20", "docker.io/library/alpine:3.20"],
  ["user/app", "docker.io/user/app:latest"],
  ["docker.io/alpine", "docker.io/library/alpine:latest"],
  ["index.docker.io/library/alpine", "docker.io/library/alpine:latest"],
  ["ghcr.io/a/b/c:v1", "ghcr.io/a/b/c:v1"],
  ["localhost/app", "localhost/app:latest"],
  ["localhost:5000/app:x", "localhost:5000/app:x"],
  ["127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest"],
  ["[::1]:5000/app", "[::1]:5000/app:latest"],
  [`alpine@${digest}`, `docker.io/library/alpine@${digest}`],
  [`r.io/alpine:3@${digest}`, `r.io/alpine:3@${digest}`],
  ["a__b/c-d.e", "docker.io/a__b/c-d.e:latest"],
  ["host", "host.agent-sandbox.local/usr:latest"],
  ["host.agent-sandbox.local/usr", "host.agent-sandbox.local/usr:latest"],
])("parseImageReference: %s is %s", (text, full) => {
  expect(formatImageReference(parseImageReference(text))).toBe(full);
  expect(parseImageReference(full)).toEqual(parseImageReference(text));
});

test.each([
  "",
  "A",
  "a/B",
  "a:",
  "a@sha256:12",
  "a//b",
  "/a",
  "a:b:c",
  "http://a/b",
  "a b",
  "../a",
  "a@md5:00",
  `a@sha512:${"0".repeat(128)}`,
  `r.io/${"a".repeat(260)}`,
  `a:${"t".repeat(129)}`,
])("parseImageReference: refuses %j", (text) => {
  expect(() => parseImageReference(text)).toThrow(SyntaxError);
  expect(isImageReference(text)).toBe(false);
});

test("isHostImage: knows the built-in image under all its names", () => {
  const names = [
    "host",
    "host.agent-sandbox.local/usr",
    "host.agent-sandbox.local/usr:latest",
    "hosts",
    "library/host",
  ];
  expect(names.map(isHostImage)).toEqual([true, true, true, false, false]);
});

test("splitImageReference: a registry's port is no tag", () => {
  expect(splitImageReference("localhost:5000/a")).toMatchObject({ tag: undefined });
  expect(splitImageReference("localhost:5000/a:b@c")).toEqual({ name: "localhost:5000/a", tag: "b", digest: "c" });
});
