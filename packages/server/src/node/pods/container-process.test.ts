import type { Pod } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { containerProcess } from "./container-process.ts";

const image = { entrypoint: [], cmd: [], env: [], user: "", workingDir: "" };
const container = { name: "main", image: "scratch" };

function resultFor(pod: Partial<Pod["metadata"]>, spec: NonNullable<Pod["spec"]> = { containers: [container] }) {
  return containerProcess({
    pod: { apiVersion: "v1", kind: "Pod", metadata: { name: "box", ...pod }, spec },
    container,
    image,
    variables: new Map(),
    imageUser: { uid: 0, gid: 0, additionalGids: [] },
    hostname: "box",
  });
}

test("containerProcess: a container that names no program stays alive behind the daemon", () => {
  expect(resultFor({})).toMatchObject({
    ok: true,
    process: { argv: ["/.agent-sandbox/sandboxd", "init", "--listen=off"] },
  });
});

test("containerProcess: without the daemon a container must name a program", () => {
  expect(resultFor({ annotations: { "agent-sandbox.dev/sandboxd": "disabled" } })).toEqual({
    ok: false,
    message: "no command specified",
  });
});

test("containerProcess: an init container must name a program", () => {
  expect(resultFor({}, { initContainers: [container], containers: [{ name: "other" }] })).toEqual({
    ok: false,
    message: "no command specified",
  });
});
