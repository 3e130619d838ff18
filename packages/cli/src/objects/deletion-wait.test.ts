import type { KubeObject } from "@agent-sandbox/api";
import { labelKeys } from "@agent-sandbox/api/labels";
import { nameHash } from "@agent-sandbox/api/name-hash";
import { createClient } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { TestServer } from "../../../server/src/apiserver/testing/test-server.ts";
import { describeDeletionWait } from "./deletion-wait.ts";
import { kindOf } from "./kinds.ts";

const extensions = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default";
const container = { name: "main", image: "host" };

test("describeDeletionWait: a template says which pools and sandboxes keep it", async () => {
  await using server = new TestServer();
  await server.installOwnCrds();
  const metadata = (name: string): object => ({ name, namespace: "default" });
  const made = async (path: string, body: object): Promise<void> => {
    expect(await server.call("POST", path, { body })).toMatchObject({ status: 201 });
  };
  await made(`${extensions}/sandboxwarmpools`, {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: metadata("ready"),
    spec: { replicas: 1, sandboxTemplateRef: { name: "web" } },
  });
  for (const name of ["a", "b", "c", "d", "e", "f"])
    await made("/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes", {
      apiVersion: "agents.x-k8s.io/v1beta1",
      kind: "Sandbox",
      metadata: { ...metadata(name), labels: { [labelKeys.templateRefHash]: nameHash("web") } },
      spec: { podTemplate: { spec: { containers: [container] } } },
    });
  const template = (name: string): KubeObject => ({
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxTemplate",
    metadata: { name, namespace: "default", finalizers: ["example.com/hold"] },
  });
  const client = createClient(server.api.transportFor({ username: "tester", groups: ["system:masters"] }));
  expect(await describeDeletionWait(client, kindOf("template"), template("web"))).toBe(
    "sandboxtemplates/web goes when nothing made from it is left: pool 'ready', sandbox 'a', sandbox 'b', sandbox 'c', sandbox 'd' and 2 more; delete those, or leave it to that with --no-wait",
  );
  expect(await describeDeletionWait(client, kindOf("template"), template("other"))).toContain(
    "sandboxtemplates/other waits until example.com/hold is taken off its finalizers",
  );
});
