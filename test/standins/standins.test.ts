import {
  configMaps,
  endpointSlices,
  ignore,
  type KubeObject,
  namespaces,
  type OwnerReference,
  type PersistentVolumeClaim,
  type Pod,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  type ResourceQuota,
  resourceQuotas,
  type Sandbox,
  sandboxArchives,
  sandboxes,
  secrets,
  serviceAccounts,
  services,
} from "@agent-sandbox/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import { addNode, isGone, openWorld, readyNode, type World } from "./world.ts";

const namespace = "default";
let world: World;

beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world[Symbol.asyncDispose]();
});

function pod(name: string, part: Partial<NonNullable<Pod["spec"]>> = {}, owners: OwnerReference[] = []): Pod {
  const containers = [
    { name: "c", image: "example.com/app:1", resources: { requests: { cpu: "100m", memory: "600Mi" } } },
  ];
  const metadata = {
    namespace,
    name,
    labels: { app: name },
    ...(owners.length === 0 ? {} : { ownerReferences: owners }),
  };
  return { apiVersion: "v1", kind: "Pod", metadata, spec: { containers, ...part } };
}

function sandbox(name: string): Sandbox {
  const podTemplate = { spec: { containers: [{ name: "c", image: "example.com/app:1" }] } };
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { namespace, name },
    spec: { podTemplate },
  };
}

function referenceTo({ apiVersion, kind, metadata }: KubeObject): OwnerReference {
  return { apiVersion, kind, name: metadata.name, uid: metadata.uid ?? "" };
}

function ownedBy(owner: KubeObject): OwnerReference {
  return { ...referenceTo(owner), controller: true };
}

async function owned(name: string, owner: KubeObject, block = false) {
  const metadata = { namespace, name, ownerReferences: [{ ...referenceTo(owner), blockOwnerDeletion: block }] };
  return world.admin.create(secrets, { apiVersion: "v1", kind: "Secret", metadata });
}

const key = (name: string) => ({ namespace, name });
const getSecret = (name: string) => world.admin.get(secrets, key(name));

test("standins: background delete: dependents of dependents follow", async () => {
  const owner = await world.admin.create(sandboxes, sandbox("s"));
  const child = await owned("child", owner);
  await owned("grandchild", child);
  await world.admin.delete(sandboxes, key("s"), { propagationPolicy: "Background" });
  await world.eventually(() => isGone(getSecret("child")));
  await world.eventually(() => isGone(getSecret("grandchild")));
});

test("standins: foreground delete: the owner goes last", async () => {
  const owner = await world.admin.create(sandboxes, sandbox("s"));
  const held = await owned("child", owner, true);
  await world.admin.patch(secrets, key("child"), {
    type: "merge",
    body: { metadata: { finalizers: ["example.com/hold"] } },
  });
  await world.admin.delete(sandboxes, key("s"), { propagationPolicy: "Foreground" });
  await world.eventually(async () => (await getSecret("child")).metadata.deletionTimestamp !== undefined);
  expect((await world.admin.get(sandboxes, key("s"))).metadata.finalizers).toContain("foregroundDeletion");
  await world.admin.patch(secrets, key("child"), {
    type: "merge",
    body: { metadata: { finalizers: null, uid: held.metadata.uid } },
  });
  await world.eventually(() => isGone(world.admin.get(sandboxes, key("s"))));
});

test("standins: orphaning delete: dependents stay, without the reference", async () => {
  const owner = await world.admin.create(sandboxes, sandbox("s"));
  await owned("child", owner, true);
  await world.eventually(() => getSecret("child"));
  await world.admin.delete(sandboxes, key("s"), { propagationPolicy: "Orphan" });
  await world.eventually(() => isGone(world.admin.get(sandboxes, key("s"))));
  expect((await getSecret("child")).metadata.ownerReferences ?? []).toEqual([]);
});

test("standins: a reference to another namespace is to nobody: it is collected, and the owner goes without it", async () => {
  const owner = await world.admin.create(sandboxes, sandbox("s"));
  await world.admin.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: "tenant-b" } });
  const metadata = { namespace: "tenant-b", name: "thief", ownerReferences: [referenceTo(owner)] };
  const kept = { ...metadata, name: "stays", finalizers: ["example.com/hold"] };
  for (const each of [metadata, kept])
    await world.admin.create(secrets, { apiVersion: "v1", kind: "Secret", metadata: each });
  await world.eventually(() => isGone(world.admin.get(secrets, { namespace: "tenant-b", name: "thief" })));
  await world.admin.delete(sandboxes, key("s"), { propagationPolicy: "Foreground" });
  await world.eventually(() => isGone(world.admin.get(sandboxes, key("s"))));
  expect(await isGone(world.admin.get(secrets, { namespace: "tenant-b", name: "stays" }))).toBe(false);
});

test("standins: an object whose owner never was is collected, and one whose owner's namesake lives too", async () => {
  const owner = await world.admin.create(sandboxes, sandbox("s"));
  await owned("phantom", {
    ...owner,
    metadata: { ...owner.metadata, name: "never", uid: "00000000-0000-4000-8000-000000000000" },
  });
  await owned("namesake", { ...owner, metadata: { ...owner.metadata, uid: "00000000-0000-4000-8000-000000000001" } });
  await owned("real", owner);
  await world.eventually(() => isGone(getSecret("phantom")));
  await world.eventually(() => isGone(getSecret("namesake")));
  expect((await getSecret("real")).metadata.deletionTimestamp).toBeUndefined();
});

test("standins: a deleted namespace is emptied of every kind and then goes", async () => {
  await world.admin.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: "doomed" } });
  await world.admin.create(configMaps, {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { namespace: "doomed", name: "c" },
  });
  const held = { ...sandbox("s"), metadata: { namespace: "doomed", name: "s", finalizers: ["example.com/hold"] } };
  await world.admin.create(sandboxes, held);
  await world.admin.delete(namespaces, { name: "doomed" });
  await world.eventually(() => isGone(world.admin.get(configMaps, { namespace: "doomed", name: "c" })));
  await world.eventually(async () => {
    const { status } = await world.admin.get(namespaces, { name: "doomed" });
    return status?.conditions?.some(({ message }) => message?.includes("example.com/hold in 1 resource instances"));
  });
  const late = world.admin.create(configMaps, {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { namespace: "doomed", name: "late" },
  });
  await expect(late).rejects.toThrow("unable to create new content in namespace doomed because it is being terminated");
  await world.admin.patch(
    sandboxes,
    { namespace: "doomed", name: "s" },
    { type: "merge", body: { metadata: { finalizers: null } } },
  );
  await world.eventually(() => isGone(world.admin.get(namespaces, { name: "doomed" })));
});

test("standins: pods are bound while there is room; a full node is named, and room wakes who waits", async () => {
  await world.admin.create(pods, pod("first"));
  await world.eventually(async () =>
    (await world.admin.get(pods, key("first"))).status?.conditions?.some(
      ({ message }) => message === "no nodes available to schedule pods",
    ),
  );
  await addNode(world.admin, readyNode("n"));
  await world.eventually(async () => (await world.admin.get(pods, key("first"))).spec?.nodeName === "n");
  await world.admin.create(pods, pod("second"));
  const refused = await world.eventually(async () =>
    (await world.admin.get(pods, key("second"))).status?.conditions?.find(({ type }) => type === "PodScheduled"),
  );
  expect(refused).toMatchObject({
    status: "False",
    reason: "Unschedulable",
    message: "0/1 nodes are available: 1 Insufficient memory.",
  });
  await world.admin.delete(pods, key("first"), { gracePeriodSeconds: 0 });
  await world.eventually(async () => (await world.admin.get(pods, key("second"))).spec?.nodeName === "n");
});

test("standins: a burst of pods never exceeds the node", async () => {
  await addNode(world.admin, readyNode("n", "2Gi"));
  await Promise.all(Array.from({ length: 8 }, (_, index) => world.admin.create(pods, pod(`p${index}`))));
  await world.eventually(
    async () =>
      (await world.admin.list(pods, { namespace })).items.filter(({ spec }) => spec?.nodeName === "n").length === 3,
  );
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect((await world.admin.list(pods, { namespace })).items.filter(({ spec }) => spec?.nodeName === "n")).toHaveLength(
    3,
  );
});

test("standins: a Service has its slice, and readiness follows the pod", async () => {
  await addNode(world.admin, readyNode("n"));
  const spec = { selector: { app: "web" }, ports: [{ name: "http", port: 80, targetPort: 8080 }] };
  await world.admin.create(services, { apiVersion: "v1", kind: "Service", metadata: { namespace, name: "web" }, spec });
  await world.admin.create(pods, pod("web"));
  const status = (ready: string) => ({
    phase: "Running",
    podIP: "10.200.1.9",
    conditions: [{ type: "Ready", status: ready }],
  });
  await world.eventually(async () => (await world.admin.get(pods, key("web"))).spec?.nodeName === "n");
  await world.admin.patch(
    pods,
    key("web"),
    { type: "strategic", body: { status: status("False") } },
    { subresource: "status" },
  );
  const labelSelector = "kubernetes.io/service-name=web";
  const slice = async () => (await world.admin.list(endpointSlices, { namespace, labelSelector })).items[0];
  await world.eventually(async () => (await slice())?.endpoints?.[0]?.conditions?.ready === false);
  await world.admin.patch(
    pods,
    key("web"),
    { type: "strategic", body: { status: status("True") } },
    { subresource: "status" },
  );
  await world.eventually(async () => (await slice())?.endpoints?.[0]?.conditions?.ready === true);
  expect(await slice()).toMatchObject({
    ports: [{ name: "http", port: 8080 }],
    endpoints: [{ addresses: ["10.200.1.9"], targetRef: { name: "web" } }],
  });
});

test("standins: every namespace has the default account and the authority", async () => {
  await world.admin.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: "fresh" } });
  await world.eventually(() =>
    world.admin.get(serviceAccounts, { namespace: "fresh", name: "default" }).catch(ignore("NotFound")),
  );
  const rootCa = await world.eventually(() =>
    world.admin.get(configMaps, { namespace: "fresh", name: "kube-root-ca.crt" }).catch(ignore("NotFound")),
  );
  expect(rootCa.data?.["ca.crt"]).toContain("BEGIN CERTIFICATE");
});

function claim(name: string): PersistentVolumeClaim {
  const spec = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } };
  return { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { namespace, name }, spec };
}

test("standins: a claim gets a volume of the default class; deleting it waits for its pod and takes the volume along", async () => {
  await world.admin.create(persistentVolumeClaims, claim("disk"));
  const bound = await world.eventually(async () => {
    const found = await world.admin.get(persistentVolumeClaims, key("disk"));
    return found.status?.phase === "Bound" && found;
  });
  expect(bound).toMatchObject({ spec: { storageClassName: "local" }, status: { capacity: { storage: "1Gi" } } });
  const volumeName = bound.spec?.volumeName ?? "";
  await world.eventually(
    async () => (await world.admin.get(persistentVolumes, { name: volumeName })).status?.phase === "Bound",
  );
  await world.admin.create(
    pods,
    pod("user", { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "disk" } }] }),
  );
  await new Promise((resolve) => setTimeout(resolve, 50));
  await world.admin.delete(persistentVolumeClaims, key("disk"));
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect((await world.admin.get(persistentVolumeClaims, key("disk"))).metadata.deletionTimestamp).toBeDefined();
  await world.admin.delete(pods, key("user"), { gracePeriodSeconds: 0 });
  await world.eventually(() => isGone(world.admin.get(persistentVolumeClaims, key("disk"))));
  await world.eventually(() => isGone(world.admin.get(persistentVolumes, { name: volumeName })));
});

test("standins: the router's Service, slice and running Pod are where published clients look", async () => {
  await world.admin.create(sandboxes, sandbox("s"));
  for (const place of ["agent-sandbox-system", namespace]) {
    const labelSelector = "kubernetes.io/service-name=sandbox-router-svc";
    const slice = await world.eventually(async () => {
      const [found] = (await world.admin.list(endpointSlices, { namespace: place, labelSelector })).items;
      return found?.endpoints?.[0]?.conditions?.ready === true && found;
    });
    const podName = slice.endpoints?.[0]?.targetRef?.name ?? "";
    expect((await world.admin.get(pods, { namespace: place, name: podName })).status?.phase).toBe("Running");
    const { spec } = await world.admin.get(services, { namespace: place, name: "sandbox-router-svc" });
    expect(spec?.ports?.[0]).toMatchObject({ port: 8080 });
  }
});

test("standins: pods of a vanished node are removed", async () => {
  await addNode(world.admin, readyNode("n"));
  await world.admin.create(pods, pod("p"));
  await world.eventually(async () => (await world.admin.get(pods, key("p"))).spec?.nodeName === "n");
  await world.admin.delete(
    { group: "", version: "v1", resource: "nodes", kind: "Node", namespaced: false },
    { name: "n" },
  );
  await world.eventually(() => isGone(world.admin.get(pods, key("p"))));
});

test("standins: a quota refuses the one too many and gives back what was deleted", async () => {
  const quota: ResourceQuota = {
    apiVersion: "v1",
    kind: "ResourceQuota",
    metadata: { namespace, name: "q" },
    spec: { hard: { "count/secrets": "3" } },
  };
  await world.admin.create(resourceQuotas, quota);
  const make = (name: string) =>
    world.admin.create(secrets, { apiVersion: "v1", kind: "Secret", metadata: { namespace, name } });
  const results = await Promise.allSettled(Array.from({ length: 6 }, (_, index) => make(`s${index}`)));
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(3);
  const refused = results.find(({ status }) => status === "rejected") as PromiseRejectedResult;
  expect(String(refused.reason)).toContain(
    "exceeded quota: q, requested: count/secrets=1, used: count/secrets=3, limited: count/secrets=3",
  );
  const [kept] = (await world.admin.list(secrets, { namespace })).items;
  await world.admin.delete(secrets, key(kept?.metadata.name ?? ""));
  await world.eventually(
    async () => (await world.admin.get(resourceQuotas, key("q"))).status?.used?.["count/secrets"] === "2",
  );
  await make("again");
});

test("standins: sandboxes have addresses of their own, which their pods share and nobody can choose", async () => {
  const made = await Promise.all(["a", "b", "c"].map((name) => world.admin.create(sandboxes, sandbox(name))));
  const addresses = made.map(({ metadata }) => metadata.annotations?.["agent-sandbox.dev/address"]);
  expect(new Set(addresses).size).toBe(3);
  const own = await world.admin.create(pods, pod("a", {}, [ownedBy(made[0] as Sandbox)]));
  expect(own.metadata.annotations?.["agent-sandbox.dev/address"]).toBe(addresses[0]);
  const plain = await world.admin.create(pods, pod("plain"));
  expect(plain.metadata.annotations?.["agent-sandbox.dev/address"]).toBeUndefined();
  const chosen = {
    ...sandbox("d"),
    metadata: { namespace, name: "d", annotations: { "agent-sandbox.dev/address": addresses[0] ?? "" } },
  };
  const refused = (await world.admin.create(sandboxes, chosen)).metadata.annotations?.["agent-sandbox.dev/address"];
  expect(addresses).not.toContain(refused);
  const service = await world.admin.create(services, {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace, name: "x" },
    spec: { ports: [{ port: 80 }] },
  });
  expect(service.spec?.clusterIP).toMatch(/^10\.200\.2[23]\d\./);
});

test("standins: the address of a sandbox that is archived stays that of its name", async () => {
  const addressOf = ({ metadata }: Sandbox): string => metadata.annotations?.["agent-sandbox.dev/address"] ?? "";
  const left = await world.admin.create(sandboxes, sandbox("left"));
  const kind = { apiVersion: "agent-sandbox.dev/v1alpha1", kind: "SandboxArchive" } as const;
  await world.admin.create(sandboxArchives, { ...kind, metadata: key("left"), spec: {} });
  const status = {
    archiveID: "a".repeat(32),
    leftAt: "2026-01-01T00:00:00Z",
    address: ["left.example", addressOf(left)],
  };
  await world.admin.patch(sandboxArchives, key("left"), { type: "merge", body: { status } }, { subresource: "status" });
  await world.admin.delete(sandboxes, key("left"));
  const other = await world.admin.create(sandboxes, sandbox("other"));
  expect(addressOf(other)).not.toBe(addressOf(left));
  const back = await world.admin.create(sandboxes, sandbox("left"));
  expect(addressOf(back)).toBe(addressOf(left));
});
