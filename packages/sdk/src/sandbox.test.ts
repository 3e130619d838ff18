import type { SandboxClaim } from "@agent-sandbox/api/kinds.gen";
import { sandboxClaims, sandboxes } from "@agent-sandbox/api/resource";
import { systemClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { type EmbeddedApi, openEmbeddedApi } from "../../../test/kube/embedded-api.ts";
import type { Engine } from "./engine/engine.ts";
import { Sandbox } from "./sandbox.ts";
import { ScriptedPlane } from "./testing/scripted-plane.ts";

const namespace = "default";

function engineOf({ client }: EmbeddedApi): Engine {
  return {
    kind: "local",
    server: "https://test",
    namespace,
    client,
    credentials: { server: "https://test" },
    routerUrl: undefined,
    openPlane: () => new ScriptedPlane(),
    openRouter: () => new ScriptedPlane(),
    isOwn: () => Promise.resolve(true),
    close: () => Promise.resolve(),
  };
}

function claim(): SandboxClaim {
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxClaim",
    metadata: { name: "mine", namespace },
    spec: { warmPoolRef: { name: "pool" } },
  };
}

/** A handle of a sandbox that a claim holds. */
async function heldSandbox(api: EmbeddedApi, spec: object = {}): Promise<Sandbox> {
  await api.serveOwnKinds();
  const { apiVersion, kind, metadata } = await api.client.create(sandboxClaims, claim());
  const owner = { apiVersion, kind, name: metadata.name, uid: metadata.uid ?? "", controller: true };
  await api.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "box", namespace, ownerReferences: [owner] },
    spec: { podTemplate: { spec: { containers: [{ name: "sandbox", image: "a" }] } }, ...spec },
  });
  return Sandbox.get("box", { engine: engineOf(api) });
}

test("Sandbox: a claim that has the name of the one that held it is neither changed nor deleted", async () => {
  await using api = openEmbeddedApi(systemClock);
  const box = await heldSandbox(api);
  expect(box.claimName).toBe("mine");
  await api.client.delete(sandboxClaims, { namespace, name: "mine" });
  const other = await api.client.create(sandboxClaims, claim());
  await expect(box.setTimeout(60_000)).rejects.toMatchObject({ code: "not-found" });
  await box.delete();
  const { metadata } = await api.client.get(sandboxClaims, { namespace, name: "mine" });
  expect(metadata).toMatchObject({ uid: other.metadata.uid, resourceVersion: other.metadata.resourceVersion });
});

test("Sandbox: the claim that holds it is changed and deleted with it", async () => {
  await using api = openEmbeddedApi(systemClock);
  const box = await heldSandbox(api, { shutdownTime: "2030-01-01T00:00:00Z" });
  expect(await box.extend(60_000)).toEqual(new Date("2030-01-01T00:01:00Z"));
  const changed = await api.client.get(sandboxClaims, { namespace, name: "mine" });
  expect(changed.spec.lifecycle?.shutdownTime).toBe("2030-01-01T00:01:00Z");
  await box.delete();
  await expect(api.client.get(sandboxClaims, { namespace, name: "mine" })).rejects.toMatchObject({
    reason: "NotFound",
  });
});
