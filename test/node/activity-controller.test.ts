import { annotationKeys, type Pod, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { systemClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { activityController } from "../../packages/server/src/node/activity/activity-controller.ts";
import { OpenStreams } from "../../packages/server/src/node/activity/open-streams.ts";
import { RouterWorld, until } from "../router/router-world.ts";

const podUid = (name: string): string => `pod-${name}`;

function podOf({ metadata }: Sandbox, podIP: string): Pod {
  const owner = {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    name: metadata.name,
    uid: metadata.uid ?? "",
  };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: metadata.name,
      namespace: "default",
      uid: podUid(metadata.name),
      ownerReferences: [{ ...owner, controller: true }],
    },
    spec: { containers: [{ name: "main" }] },
    status: { podIP },
  };
}

test("activityController: reports what is in use, leaves the idle alone, and waits for no daemon that is silent", async () => {
  await using world = await RouterWorld.open();
  const make = (name: string): Promise<Sandbox> =>
    world.admin.create(sandboxes, {
      apiVersion: "agents.x-k8s.io/v1beta1",
      kind: "Sandbox",
      metadata: { name, namespace: "default" },
      spec: {
        podTemplate: { spec: { containers: [{ name: "main", image: "example.com/app:1" }] } },
        autoSuspension: { inactivityTimeoutSeconds: 60 },
      },
    });
  // They were made half their timeout ago: a look at them is due.
  const creationTimestamp = new Date(Date.now() - 30_000).toISOString();
  const created = await Promise.all(["silent", "busy", "tunnelled", "idle", "dialled"].map(make));
  const made = created.map((sandbox) => ({
    ...sandbox,
    metadata: { ...sandbox.metadata, creationTimestamp },
    status: { podUID: podUid(sandbox.metadata.name) },
  }));
  const pods = made.map((sandbox, index) => podOf(sandbox, `10.0.0.${index}`));
  const streams = new OpenStreams(() => Date.now());
  const endStream = streams.begin("default/tunnelled", () => undefined);
  const ending = new AbortController();
  const asked: string[] = [];
  const keeping = activityController({
    client: world.admin,
    clock: systemClock,
    pods: {
      get: (key) => pods.find(({ metadata }) => key === `default/${metadata.name}`),
      byIndex: (_index, uid) => pods.filter(({ metadata }) => metadata.uid === uid),
      addHandler: (handler) => {
        for (const pod of pods) handler.onAdd?.(pod, { initial: true });
        return () => undefined;
      },
    },
    sandboxes: {
      get: (key) => made.find(({ metadata }) => key === `default/${metadata.name}`),
      addHandler: () => () => undefined,
    },
    streams,
    ask: (address) => {
      asked.push(address);
      if (address === "10.0.0.0") return new Promise(() => undefined);
      return Promise.resolve({ isInUse: address === "10.0.0.1", lastUseMs: 0 });
    },
    isDialled: async (address) => address === "10.0.0.4",
  }).run(ending.signal);
  const activity = async (name: string): Promise<string | undefined> =>
    (await world.admin.get(sandboxes, { namespace: "default", name })).metadata.annotations?.[
      annotationKeys.lastActivityAt
    ];
  for (const name of ["busy", "tunnelled", "dialled"]) await until(async () => (await activity(name)) !== undefined);
  await until(() => asked.includes("10.0.0.3"));
  expect(await activity("idle")).toBeUndefined();
  expect(await activity("silent")).toBeUndefined();
  // No question is sent where a stream or a connection is seen to be open.
  expect(asked).not.toContain("10.0.0.2");
  expect(asked).not.toContain("10.0.0.4");
  endStream();
  ending.abort();
  await keeping;
});
