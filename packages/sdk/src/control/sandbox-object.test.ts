import type { Container } from "@agent-sandbox/api/builtin.gen";
import { hostImage } from "@agent-sandbox/api/image-reference";
import { expect, test } from "vitest";
import { claimObject, sandboxObject } from "./sandbox-object.ts";

const own = { name: "a", namespace: "ns", nowMs: Date.parse("2026-01-01T00:00:00Z"), isOwnEngine: true };

test("sandboxObject: without options it waits for commands on the built-in image", () => {
  const { spec, metadata } = sandboxObject({}, own);
  expect(metadata.labels).toEqual({ "agents.x-k8s.io/created-by": "typescript-client" });
  expect(spec.podTemplate.spec).toEqual({
    automountServiceAccountToken: false,
    containers: [{ name: "sandbox", image: hostImage, command: ["/.agent-sandbox/sandboxd", "init", "--listen=off"] }],
  });
});

test("sandboxObject: a cluster has no built-in image and says so", () => {
  expect(() => sandboxObject({}, { ...own, isOwnEngine: false })).toThrow("name an image");
});

test("sandboxObject: the image's own command is left alone when asked", () => {
  const { spec } = sandboxObject({ image: "nginx", command: "image" }, { ...own, isOwnEngine: false });
  expect(spec.podTemplate.spec.containers).toEqual([{ name: "sandbox", image: "nginx", stdin: true }]);
});

test("sandboxObject: a container that names its program or its input keeps both", () => {
  const containerOf = (given: Partial<Container>) => {
    const podTemplate = { spec: { containers: [{ name: "c", image: "i", ...given }] } };
    return sandboxObject({ command: "image", podTemplate }, own).spec.podTemplate.spec.containers?.[0];
  };
  expect(containerOf({ args: ["-v"] })).toEqual({ name: "c", image: "i", args: ["-v"] });
  expect(containerOf({ command: ["sh"] })).toEqual({ name: "c", image: "i", command: ["sh"] });
  expect(containerOf({ stdin: false })).toEqual({ name: "c", image: "i", stdin: false });
});

test("sandboxObject: limits, variables, life and volumes reach the object", () => {
  const { spec } = sandboxObject(
    {
      image: "i",
      env: { A: "1" },
      cpu: 2,
      memory: "1Gi",
      ttlMs: 90_500,
      autoSuspendMs: 60_000,
      volumes: [{ path: "/w", size: "1Gi" }],
    },
    own,
  );
  expect(spec).toMatchObject({
    shutdownTime: "2026-01-01T00:01:31Z",
    shutdownPolicy: "Delete",
    autoSuspension: { inactivityTimeoutSeconds: 60 },
  });
  expect(spec.volumeClaimTemplates?.[0]?.spec.resources?.requests).toEqual({ storage: "1Gi" });
  expect(spec.podTemplate.spec.containers?.[0]).toMatchObject({
    env: [{ name: "A", value: "1" }],
    resources: { limits: { cpu: "2", memory: "1Gi" } },
    volumeMounts: [{ name: "volume-0", mountPath: "/w" }],
  });
});

test("sandboxObject: how it sleeps, wakes and recovers reaches the object", () => {
  const podFailurePolicy = { type: "Recreate", retriesMax: 2 } as const;
  const { spec } = sandboxObject({ suspensionStrategy: "Freeze", wakePolicy: "Never", podFailurePolicy }, own);
  expect(spec).toMatchObject({ suspensionStrategy: { type: "Freeze" }, wakePolicy: "Never", podFailurePolicy });
});

test("claimObject: says when the client asked", () => {
  const { metadata, spec } = claimObject("p", { env: { A: "1" } }, own);
  expect(metadata.annotations).toEqual({ "agents.x-k8s.io/client-first-requested-at": "2026-01-01T00:00:00Z" });
  expect(spec).toEqual({ warmPoolRef: { name: "p" }, env: [{ name: "A", value: "1" }] });
});

test("sandboxObject: a second time of idleness goes with the first and is nothing without it", () => {
  const { spec } = sandboxObject(
    { autoSuspendMs: 60_000, hibernateAfterMs: 600_000, suspensionStrategy: "Freeze" },
    own,
  );
  expect(spec.autoSuspension).toEqual({ inactivityTimeoutSeconds: 60, hibernateAfterSeconds: 600 });
  expect(() => sandboxObject({ hibernateAfterMs: 600_000 }, own)).toThrow("hibernateAfterMs needs autoSuspendMs");
});
