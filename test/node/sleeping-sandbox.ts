import { type Container, type Pod, pods, type Sandbox, type SleepWish, sandboxes } from "@agent-sandbox/api";
import { isReady, type NodeWorld } from "./node-world.ts";

/** A Sandbox of one container that does nothing. */
export async function createSandbox(
  world: NodeWorld,
  name: string,
  { container = {}, spec = {} }: { container?: Partial<Container>; spec?: Partial<Sandbox["spec"]> } = {},
): Promise<Sandbox> {
  const metadata = { name, namespace: "default", annotations: { "agent-sandbox.dev/address": "10.200.0.77" } };
  const containers = [{ name: "main", image: "host", command: ["sleep", "1d"], ...container }];
  return world.client.create(sandboxes, {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata,
    spec: { podTemplate: { spec: { containers } }, ...spec },
  } as Sandbox);
}

/** Makes the Sandbox's pod and names it in the status, as its controller does. */
export async function createPodOf(world: NodeWorld, sandbox: Sandbox): Promise<Pod> {
  const { name, uid = "" } = sandbox.metadata;
  const owner = { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name, uid, controller: true };
  const pod = await world.client.create(pods, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", ownerReferences: [owner] },
    spec: { nodeName: world.config.nodeName, ...sandbox.spec.podTemplate.spec },
  } as Pod);
  await patchStatus(world, sandbox, { podUID: pod.metadata.uid });
  return pod;
}

/** A Sandbox whose pod is ready. */
export async function startSandbox(
  world: NodeWorld,
  name: string,
  container: Partial<Container> = {},
  spec: Partial<Sandbox["spec"]> = {},
): Promise<Sandbox> {
  const sandbox = await createSandbox(world, name, { container, spec });
  await createPodOf(world, sandbox);
  await world.podWhere(name, isReady);
  return sandbox;
}

/** Makes or withdraws the wish for sleep, as the controller does. */
export function nameWish(world: NodeWorld, sandbox: Sandbox, sleep: SleepWish | null): Promise<void> {
  return patchStatus(world, sandbox, { sleep });
}

async function patchStatus(world: NodeWorld, { metadata: { name } }: Sandbox, status: object): Promise<void> {
  const patch = { type: "merge", body: { status } } as const;
  await world.client.patch(sandboxes, { namespace: "default", name }, patch, { subresource: "status" });
}
