import type { Condition } from "@agent-sandbox/api/meta";
import type { Client } from "@agent-sandbox/kube/client";
import { expect, test } from "vitest";
import type { Engine } from "../engine/engine.ts";
import { findContainerEnd } from "./find-container-end.ts";

const startMs = Date.parse("2026-01-01T00:01:00.500Z");

function condition(type: string, at: string, status: "True" | "False" = "True"): Condition {
  return { type, status, reason: "Because", message: `${type} happened`, lastTransitionTime: `2026-01-01T00:${at}Z` };
}

function engineWith(...conditions: Condition[]): Engine {
  const client: Partial<Client> = {
    get: async () => ({ metadata: { name: "box", uid: "uid-1" }, status: { conditions } }) as never,
  };
  return { client: client as Client } as Engine;
}

const question = { namespace: "default", name: "box", uid: "uid-1", sinceMs: startMs } as const;

test.each([
  [
    "a limit says more than the end",
    [condition("ContainerEnded", "01:02"), condition("OOMKilled", "01:02")],
    "OOMKilled",
  ],
  ["an end by no limit", [condition("ContainerEnded", "01:02")], undefined],
])("findContainerEnd: %s", async (_title, conditions, limit) => {
  const end = await findContainerEnd(engineWith(...conditions), { ...question, kind: "lost" });
  expect(end).toEqual({ ...(limit !== undefined && { limit }), message: `${limit ?? "ContainerEnded"} happened` });
});

test.each([
  ["lost", "00:58", false],
  ["lost", "01:00", true],
  ["gone", "00:58", true],
  ["gone", "00:54", false],
] as const)("findContainerEnd: where the process is %s, an end at %s is its own: %s", async (kind, at, isOwn) => {
  const end = await findContainerEnd(engineWith(condition("OOMKilled", at)), { ...question, kind });
  expect(end !== undefined).toBe(isOwn);
});

test("findContainerEnd: another sandbox of the same name, and a limit that is no more, explain nothing", async () => {
  const ended = condition("OOMKilled", "01:02");
  expect(await findContainerEnd(engineWith(ended), { ...question, uid: "uid-2", kind: "lost" })).toBeUndefined();
  const over = condition("OOMKilled", "01:02", "False");
  expect(await findContainerEnd(engineWith(over), { ...question, kind: "lost" })).toBeUndefined();
});
