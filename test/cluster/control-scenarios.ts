import {
  type Condition,
  events,
  type KubeObject,
  networkPolicies,
  type Pod,
  persistentVolumeClaims,
  pods,
  type Resource,
  type Sandbox,
  sandboxClaims,
  sandboxes,
  sandboxPhase,
  sandboxTemplates,
  sandboxWarmPools,
  services,
} from "@agent-sandbox/api";
import { expect } from "vitest";
import { aClaim, aPool, aTemplate, container } from "./claim-objects.ts";
import { crashesAnnotation, exitCodeAnnotation, missingImage, reportsEndAnnotation } from "./fake-kubelet.ts";
import type { Ground } from "./scenario-ground.ts";

/** One behaviour of the controllers that is the same on both engines. */
export interface ControlScenario {
  readonly title: string;
  readonly run: (ground: Ground) => Promise<void>;
}

const scenario = (title: string, run: ControlScenario["run"]): ControlScenario => ({ title, run });

/** A Sandbox of one container. */
export function aSandbox(name: string, spec: Partial<Sandbox["spec"]> = {}, annotations = {}): Sandbox {
  const podTemplate = {
    metadata: { annotations },
    spec: { containers: [container()], restartPolicy: "Never" as const },
  };
  return { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata: { name }, spec: { podTemplate, ...spec } };
}

/** The condition of a type, if it is there. */
export function conditionOf(object: { status?: { conditions?: Condition[] } }, type: string): Condition | undefined {
  return object.status?.conditions?.find((each) => each.type === type);
}

const isReady = (object: { status?: { conditions?: Condition[] } }): boolean =>
  conditionOf(object, "Ready")?.status === "True";
const readyReason = (object: { status?: { conditions?: Condition[] } }): string | undefined =>
  conditionOf(object, "Ready")?.reason;
const suspend = { spec: { operatingMode: "Suspended" } };
const resume = { spec: { operatingMode: "Running" } };

async function readySandbox(g: Ground, name = "box", spec: Partial<Sandbox["spec"]> = {}): Promise<Sandbox> {
  await g.create(sandboxes, aSandbox(name, spec));
  return g.until(sandboxes, name, isReady);
}

async function filledPool(g: Ground, replicas: number): Promise<void> {
  await g.create(sandboxTemplates, aTemplate("tpl"));
  await g.create(sandboxWarmPools, aPool("pool", "tpl", replicas));
  await g.until(
    sandboxWarmPools,
    "pool",
    ({ status }) => status !== undefined && (status.readyReplicas ?? 0) === replicas,
  );
}

function gone<T extends KubeObject>(g: Ground, resource: Resource<T>, name: string): Promise<void> {
  return g.untilGone(resource, name);
}

/** Sandboxes: life, sleep, end. */
const sandboxScenarios: ControlScenario[] = [
  scenario("a Sandbox becomes Ready with its Pod", async (g) => {
    const box = await readySandbox(g);
    expect(box.status?.podIPs).toHaveLength(1);
    const pod = await g.get(pods, "box");
    expect(pod.metadata.ownerReferences?.[0]).toMatchObject({
      kind: "Sandbox",
      name: "box",
      uid: box.metadata.uid,
      controller: true,
    });
  }),
  scenario("a Sandbox with a Service is reachable by name", async (g) => {
    const box = await readySandbox(g, "box", { service: true });
    expect(box.status?.serviceFQDN).toBe(`box.${g.namespace}.svc.cluster.local`);
    expect((await g.get(services, "box")).spec?.clusterIP).toBe("None");
  }),
  scenario("a Sandbox without a Service has none", async (g) => {
    await readySandbox(g, "box", { service: false });
    expect((await g.list(services)).map(({ metadata }) => metadata.name)).not.toContain("box");
  }),
  scenario("deleting a Sandbox takes its Pod and Service", async (g) => {
    await readySandbox(g, "box", { service: true });
    await g.remove(sandboxes, "box");
    await gone(g, pods, "box");
    await gone(g, services, "box");
  }),
  scenario("suspending deletes the Pod and keeps the Sandbox", async (g) => {
    await readySandbox(g);
    await g.patch(sandboxes, "box", suspend);
    await g.until(sandboxes, "box", (box) => conditionOf(box, "Suspended")?.status === "True");
    await gone(g, pods, "box");
  }),
  scenario("resuming makes a new Pod", async (g) => {
    await readySandbox(g);
    const before = (await g.get(pods, "box")).metadata.uid;
    await g.patch(sandboxes, "box", suspend);
    await gone(g, pods, "box");
    await g.patch(sandboxes, "box", resume);
    await g.until(sandboxes, "box", isReady);
    expect((await g.get(pods, "box")).metadata.uid).not.toBe(before);
  }),
  scenario("a lost Pod is made again", async (g) => {
    await readySandbox(g);
    const { uid } = (await g.get(pods, "box")).metadata;
    await g.remove(pods, "box");
    await g.until(pods, "box", (pod) => pod.metadata.uid !== uid && pod.status?.phase === "Running");
    await g.until(sandboxes, "box", isReady);
  }),
  scenario("a Pod that completes finishes the Sandbox", async (g) => {
    await g.create(sandboxes, aSandbox("box", {}, { [exitCodeAnnotation]: "0" }));
    const box = await g.until(sandboxes, "box", (each) => conditionOf(each, "Finished")?.status === "True");
    expect(conditionOf(box, "Finished")?.reason).toBe("PodSucceeded");
  }),
  scenario("a Pod that fails finishes the Sandbox", async (g) => {
    await g.create(sandboxes, aSandbox("box", {}, { [exitCodeAnnotation]: "3" }));
    const box = await g.until(sandboxes, "box", (each) => conditionOf(each, "Finished")?.status === "True");
    expect(conditionOf(box, "Finished")?.reason).toBe("PodFailed");
  }),
  scenario("an expired Sandbox is deleted", async (g) => {
    await g.create(sandboxes, aSandbox("box", { shutdownTime: g.inSeconds(2), shutdownPolicy: "Delete" }));
    await gone(g, sandboxes, "box");
    await gone(g, pods, "box");
  }),
  scenario("an expired Sandbox that is retained says so", async (g) => {
    await g.create(sandboxes, aSandbox("box", { shutdownTime: g.inSeconds(2), shutdownPolicy: "Retain" }));
    await g.until(sandboxes, "box", (box) => readyReason(box) === "SandboxExpired");
    await gone(g, pods, "box");
  }),
  scenario("volume claims outlive suspension and go with the Sandbox", async (g) => {
    const claim = {
      metadata: { name: "home" },
      spec: { accessModes: ["ReadWriteOnce" as const], resources: { requests: { storage: "1Gi" } } },
    };
    await g.create(sandboxes, aSandbox("box", { volumeClaimTemplates: [claim] }));
    const [made] = await g.untilList(persistentVolumeClaims, (all) => all.length === 1);
    await g.patch(sandboxes, "box", suspend);
    await g.until(sandboxes, "box", (box) => conditionOf(box, "Suspended")?.status === "True");
    expect(await g.list(persistentVolumeClaims)).toHaveLength(1);
    await g.remove(sandboxes, "box");
    await gone(g, persistentVolumeClaims, made?.metadata.name ?? "");
  }),
  scenario("a Pod too large for every node is told", async (g) => {
    const huge = { ...container(), resources: { requests: { cpu: "100000" } } };
    await g.create(sandboxes, aSandbox("box", { podTemplate: { spec: { containers: [huge] } } }));
    const box = await g.until(
      sandboxes,
      "box",
      (each) => conditionOf(each, "Ready")?.status === "False" && readyReason(each) !== "SandboxInitializing",
    );
    expect(conditionOf(box, "Ready")?.reason).toBeTruthy();
    expect((await g.get(pods, "box")).status?.phase).toBe("Pending");
  }),
  scenario("an image that is not there keeps it waiting", async (g) => {
    await g.create(sandboxes, aSandbox("box", { podTemplate: { spec: { containers: [container(missingImage)] } } }));
    await g.until(
      pods,
      "box",
      (pod: Pod) => pod.status?.containerStatuses?.[0]?.state?.waiting?.reason === "ImagePullBackOff",
    );
    expect(isReady(await g.get(sandboxes, "box"))).toBe(false);
  }),
  scenario("a foreign Pod of the name is left alone", async (g) => {
    await g.create(pods, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "box" },
      spec: { containers: [container()] },
    });
    await g.create(sandboxes, aSandbox("box"));
    await g.until(sandboxes, "box", (box) => conditionOf(box, "Ready")?.status === "False");
    expect((await g.get(pods, "box")).metadata.ownerReferences).toBeUndefined();
  }),
  scenario("labels of the template reach the Pod", async (g) => {
    const podTemplate = { metadata: { labels: { team: "blue" } }, spec: { containers: [container()] } };
    await readySandbox(g, "box", { podTemplate });
    expect((await g.get(pods, "box")).metadata.labels?.["team"]).toBe("blue");
  }),
  scenario("a finished Sandbox with a time to live goes", async (g) => {
    await g.create(
      sandboxes,
      aSandbox("box", { ttlSecondsAfterFinished: 1, shutdownPolicy: "Delete" }, { [exitCodeAnnotation]: "0" }),
    );
    await gone(g, sandboxes, "box");
  }),
  scenario("a suspended Sandbox with a time to live is not over, however its Pod ends", async (g) => {
    const spec = { ttlSecondsAfterFinished: 0, shutdownPolicy: "Delete" as const };
    await g.create(sandboxes, aSandbox("box", spec, { [reportsEndAnnotation]: "true" }));
    await g.until(sandboxes, "box", isReady);
    await g.patch(sandboxes, "box", suspend);
    const box = await g.until(sandboxes, "box", (each) => conditionOf(each, "Suspended")?.status === "True");
    expect(conditionOf(box, "Finished")).toBeUndefined();
    await g.patch(sandboxes, "box", resume);
    await g.until(sandboxes, "box", isReady);
  }),
  scenario("a failed Pod is made again where that is asked for", async (g) => {
    const policy = { podFailurePolicy: { type: "Recreate" as const, retriesMax: 1, backoffSeconds: 1 } };
    await g.create(sandboxes, aSandbox("box", policy, { [exitCodeAnnotation]: "1" }));
    const first = await g.until(pods, "box", (pod) => pod.status?.phase === "Failed");
    await g.until(pods, "box", (pod) => pod.metadata.uid !== first.metadata.uid);
  }),
  scenario("a container without a command waits for input, unless an annotation says no", async (g) => {
    await readySandbox(g);
    await readySandbox(g, "named", { podTemplate: { spec: { containers: [{ ...container(), args: ["serve"] }] } } });
    await g.create(sandboxes, aSandbox("bare", {}, { "agent-sandbox.dev/container-defaults": "disabled" }));
    const shown = async (name: string): Promise<unknown[]> => {
      const { spec } = await g.until(pods, name, () => true);
      const { stdin = false, terminationMessagePolicy = "File" } = spec?.containers[0] ?? {};
      return [stdin, terminationMessagePolicy];
    };
    expect(await shown("box")).toEqual([true, "FallbackToLogsOnError"]);
    expect(await shown("named")).toEqual([false, "FallbackToLogsOnError"]);
    expect(await shown("bare")).toEqual([false, "File"]);
    // What its author wrote is not touched: clients compare it.
    expect((await g.get(sandboxes, "box")).spec.podTemplate.spec.containers).toEqual([container()]);
  }),
  scenario("a crash loop has a condition beside an unchanged Ready", async (g) => {
    await g.create(sandboxes, aSandbox("box", {}, { [crashesAnnotation]: "3" }));
    const box = await g.until(sandboxes, "box", (found) => conditionOf(found, "CrashLoop")?.status === "True");
    expect(conditionOf(box, "CrashLoop")).toMatchObject({
      reason: "CrashLoopBackOff",
      message: expect.stringMatching(/exit code 3 .*it printed last: its last line; .*command: \["sleep"/) as string,
    });
    expect(conditionOf(box, "Ready")).toMatchObject({
      reason: "DependenciesNotReady",
      message: "Pod is Running but not Ready",
    });
    expect(sandboxPhase(box)).toMatchObject({ phase: "crash-loop", isTerminal: true });
    await g.untilList(events, (all) => all.some(({ type, reason }) => type === "Warning" && reason === "CrashLoop"));
    await g.patch(sandboxes, "box", suspend);
    await g.until(sandboxes, "box", (found) => conditionOf(found, "CrashLoop") === undefined);
  }),
  scenario("services of a Sandbox reach its Pod, and leave it", async (g) => {
    const key = "agent-sandbox.dev/services";
    const text = '[{"name":"web","command":["serve"]}]';
    await readySandbox(g);
    await g.patch(sandboxes, "box", { metadata: { annotations: { [key]: text } } });
    await g.until(pods, "box", (pod) => pod.metadata.annotations?.[key] === text);
    await g.patch(sandboxes, "box", { metadata: { annotations: { [key]: null } } });
    await g.until(pods, "box", (pod) => pod.metadata.annotations?.[key] === undefined);
  }),
  scenario("events tell the story", async (g) => {
    await readySandbox(g);
    await g.untilList(events, (all) =>
      all.some(({ regarding, reason }) => regarding?.name === "box" && reason !== undefined && reason !== ""),
    );
  }),
];

/** Templates, pools and claims. */
const extensionScenarios: ControlScenario[] = [
  scenario("a template gets its network policy", async (g) => {
    await g.create(sandboxTemplates, aTemplate("tpl"));
    const [policy] = await g.untilList(networkPolicies, (all) => all.length === 1);
    expect(policy?.metadata.ownerReferences?.[0]).toMatchObject({ kind: "SandboxTemplate", name: "tpl" });
  }),
  scenario("a pool fills", async (g) => {
    await filledPool(g, 3);
    expect(await g.list(sandboxes)).toHaveLength(3);
  }),
  scenario("a pool grows and shrinks", async (g) => {
    await filledPool(g, 2);
    await g.patch(sandboxWarmPools, "pool", { spec: { replicas: 4 } });
    await g.untilList(sandboxes, (all) => all.length === 4);
    await g.patch(sandboxWarmPools, "pool", { spec: { replicas: 1 } });
    await g.untilList(sandboxes, (all) => all.length === 1);
  }),
  scenario("a pool without its template waits for it", async (g) => {
    await g.create(sandboxWarmPools, aPool("pool", "tpl", 1));
    await g.until(sandboxWarmPools, "pool", ({ status }) => (status?.conditions ?? []).length > 0);
    await g.create(sandboxTemplates, aTemplate("tpl"));
    await g.until(sandboxWarmPools, "pool", ({ status }) => status?.readyReplicas === 1);
  }),
  scenario("deleting a pool takes its members", async (g) => {
    await filledPool(g, 2);
    await g.remove(sandboxWarmPools, "pool");
    await g.untilList(sandboxes, (all) => all.length === 0);
    await g.untilList(pods, (all) => all.every(({ metadata }) => metadata.ownerReferences === undefined));
  }),
  scenario("a claim takes a warm member and the pool refills", async (g) => {
    await filledPool(g, 2);
    const members = new Set((await g.list(sandboxes)).map(({ metadata }) => metadata.name));
    await g.create(sandboxClaims, aClaim("claim", "pool"));
    const claim = await g.until(sandboxClaims, "claim", isReady);
    expect(members).toContain(claim.status?.sandbox?.name);
    await g.untilList(sandboxes, (all) => all.length === 3);
  }),
  scenario("a claim on an empty pool starts cold", async (g) => {
    await filledPool(g, 0);
    await g.create(sandboxClaims, aClaim("claim", "pool"));
    const claim = await g.until(sandboxClaims, "claim", isReady);
    expect((await g.get(sandboxes, claim.status?.sandbox?.name ?? "")).metadata.ownerReferences?.[0]?.kind).toBe(
      "SandboxClaim",
    );
  }),
  scenario("a claim that wants only warm ones waits", async (g) => {
    await filledPool(g, 0);
    await g.create(sandboxClaims, aClaim("claim", "pool", { startPolicy: "WarmOnly" }));
    await g.until(sandboxClaims, "claim", (claim) => conditionOf(claim, "Ready")?.status === "False");
    await g.patch(sandboxWarmPools, "pool", { spec: { replicas: 1 } });
    await g.until(sandboxClaims, "claim", isReady);
  }),
  scenario("a claim on a missing pool says so", async (g) => {
    await g.create(sandboxClaims, aClaim("claim", "nowhere"));
    await g.until(sandboxClaims, "claim", (claim) => conditionOf(claim, "Ready")?.status === "False");
  }),
  scenario("deleting a claim takes its Sandbox", async (g) => {
    await filledPool(g, 1);
    await g.create(sandboxClaims, aClaim("claim", "pool"));
    const claim = await g.until(sandboxClaims, "claim", isReady);
    await g.remove(sandboxClaims, "claim");
    await gone(g, sandboxes, claim.status?.sandbox?.name ?? "");
  }),
  scenario("ten claims get ten Sandboxes", async (g) => {
    await filledPool(g, 5);
    const names = Array.from({ length: 10 }, (_, index) => `claim-${index}`);
    await Promise.all(names.map((name) => g.create(sandboxClaims, aClaim(name, "pool"))));
    const claims = await Promise.all(names.map((name) => g.until(sandboxClaims, name, isReady)));
    expect(new Set(claims.map(({ status }) => status?.sandbox?.name)).size).toBe(10);
  }),
  scenario("an expired claim is deleted with its Sandbox", async (g) => {
    await filledPool(g, 1);
    await g.create(
      sandboxClaims,
      aClaim("claim", "pool", { lifecycle: { shutdownTime: g.inSeconds(2), shutdownPolicy: "Delete" } }),
    );
    await gone(g, sandboxClaims, "claim");
  }),
  scenario("metadata of a claim reaches the Pod", async (g) => {
    await filledPool(g, 1);
    const labels = { "sandbox.users.io/user": "ada" };
    await g.create(sandboxClaims, aClaim("claim", "pool", { additionalPodMetadata: { labels } }));
    const claim = await g.until(sandboxClaims, "claim", isReady);
    await g.until(
      pods,
      claim.status?.sandbox?.name ?? "",
      (pod) => pod.metadata.labels?.["sandbox.users.io/user"] === "ada",
    );
  }),
  scenario("metadata of a forbidden domain is refused", async (g) => {
    await filledPool(g, 1);
    const labels = { "kubernetes.io/bad": "x" };
    await g.create(sandboxClaims, aClaim("claim", "pool", { additionalPodMetadata: { labels } }));
    await g.until(sandboxClaims, "claim", (claim) => conditionOf(claim, "Ready")?.status === "False");
    expect(await g.list(sandboxes)).toHaveLength(1);
  }),
];

/** Every scenario, for both engines. */
export const controlScenarios: readonly ControlScenario[] = [...sandboxScenarios, ...extensionScenarios];
