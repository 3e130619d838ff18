import type { Sandbox } from "@agent-sandbox/api/kinds.gen";
import { sandboxes } from "@agent-sandbox/api/resource";
import type { Client } from "@agent-sandbox/kube/client";
import { expect, test } from "vitest";
import { createWhole } from "./create-whole.ts";

const made = {
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { namespace: "default", name: "box-1", uid: "uid-1" },
  spec: { podTemplate: { spec: { containers: [] } } },
} as unknown as Sandbox;

test("createWhole: a call that is given up while the object is made deletes it again", async () => {
  const { promise: answer, resolve } = Promise.withResolvers<Sandbox>();
  const deleted: unknown[] = [];
  const client = {
    create: () => answer,
    delete: (_resource: unknown, key: object, options: object) => {
      deleted.push({ ...key, ...options });
      return Promise.resolve();
    },
  } as unknown as Client;
  const abort = new AbortController();
  const creating = createWhole(client, sandboxes, made, abort.signal);
  abort.abort(new Error("enough"));
  resolve(made);
  await expect(creating).rejects.toThrow("enough");
  expect(deleted).toEqual([{ namespace: "default", name: "box-1", uid: "uid-1" }]);
});

test("createWhole: a refusal leaves nothing to undo", async () => {
  const client = { create: () => Promise.reject(new Error("refused")) } as unknown as Client;
  await expect(createWhole(client, sandboxes, made, new AbortController().signal)).rejects.toThrow("refused");
});
