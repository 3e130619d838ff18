import {
  type LimitRange,
  limitRanges,
  type Namespace,
  namespaces,
  type PersistentVolumeClaim,
  type Pod,
  pods,
  priorityClasses,
  type ResourceQuota,
  resourceQuotas,
  runtimeClasses,
  type ServiceAccount,
  serviceAccounts,
  storageClasses,
} from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { nodeUser } from "../auth/components.ts";
import { RbacAuthorizer } from "../auth/rbac-authorizer.ts";
import { RbacIndex } from "../auth/rbac-index.ts";
import { MemoryReader } from "../auth/testing/memory-reader.ts";
import { DefaultStorageClass } from "./default-storage-class.ts";
import { ImmutableFields } from "./immutable-fields.ts";
import { LimitRanger } from "./limit-ranger.ts";
import { NamespaceLifecycle } from "./namespace-lifecycle.ts";
import { NodeRestriction } from "./node-restriction.ts";
import { Priority } from "./priority.ts";
import { RbacEscalation } from "./rbac-escalation.ts";
import { ReservedMetadata } from "./reserved-metadata.ts";
import { ResourceQuotaAdmission } from "./resource-quota.ts";
import { RuntimeClassAdmission } from "./runtime-class.ts";
import { ServiceAccountAdmission } from "./service-account.ts";
import { admit, object } from "./testing/admit.ts";

const podWith = (spec: Record<string, unknown> = {}, metadata: Record<string, unknown> = {}): Pod =>
  object("Pod", {
    metadata: { namespace: "a", name: "x", ...metadata },
    spec: { containers: [{ name: "c", image: "i" }], ...spec },
  });
const sized = (requests: Record<string, string>, limits: Record<string, string> = {}): Pod =>
  podWith({ containers: [{ name: "c", image: "i", resources: { requests, limits } }] });

test("NamespaceLifecycle: absent, ending and permanent namespaces", async () => {
  const ending = object<Namespace>("Namespace", { metadata: { name: "a", deletionTimestamp: "2026-01-01T00:00:00Z" } });
  await expect(admit(new NamespaceLifecycle(new MemoryReader()), { resource: "pods" })).rejects.toThrow(
    'namespaces "a" not found',
  );
  const error = await admit(new NamespaceLifecycle(new MemoryReader().put(namespaces, ending)), {
    resource: "pods",
    name: "x",
  }).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({
    status: 403,
    message: 'pods "x" is forbidden: unable to create new content in namespace a because it is being terminated',
    details: { causes: [{ reason: "NamespaceTerminating" }] },
  });
  const remove = { resource: "namespaces", verb: "delete", namespace: "", name: "default" } as const;
  await expect(admit(new NamespaceLifecycle(new MemoryReader()), remove)).rejects.toThrow(
    "this namespace may not be deleted",
  );
});

test("ServiceAccount: the default account, its secrets and the token volume", async () => {
  const account = object<ServiceAccount>("ServiceAccount", {
    metadata: { namespace: "a", name: "default" },
    imagePullSecrets: [{ name: "pull" }],
  });
  const pod = podWith({ initContainers: [{ name: "i", image: "i" }] });
  await admit(new ServiceAccountAdmission(new MemoryReader().put(serviceAccounts, account), () => 0), {
    resource: "pods",
    object: pod,
  });
  expect(pod.spec).toMatchObject({
    serviceAccountName: "default",
    imagePullSecrets: [{ name: "pull" }],
    volumes: [
      {
        name: "kube-api-access-bbbbb",
        projected: {
          sources: [{ serviceAccountToken: { path: "token" } }, { configMap: { name: "kube-root-ca.crt" } }, {}],
        },
      },
    ],
    containers: [{ volumeMounts: [{ mountPath: "/var/run/secrets/kubernetes.io/serviceaccount", readOnly: true }] }],
    initContainers: [{ volumeMounts: [{ mountPath: "/var/run/secrets/kubernetes.io/serviceaccount" }] }],
  });
});

test("ServiceAccount: automount can be turned off by account or pod; the pod wins", async () => {
  const account = object<ServiceAccount>("ServiceAccount", {
    metadata: { namespace: "a", name: "w" },
    automountServiceAccountToken: false,
  });
  const rule = new ServiceAccountAdmission(new MemoryReader().put(serviceAccounts, account), () => 0);
  const [quiet, loud] = [
    podWith({ serviceAccountName: "w" }),
    podWith({ serviceAccountName: "w", automountServiceAccountToken: true }),
  ];
  await admit(rule, { resource: "pods", object: quiet });
  await admit(rule, { resource: "pods", object: loud });
  expect([quiet.spec?.volumes?.length ?? 0, loud.spec?.volumes?.length ?? 0]).toEqual([0, 1]);
  const missing = admit(rule, { resource: "pods", object: podWith({ serviceAccountName: "nobody" }) });
  await expect(missing).rejects.toThrow('error looking up service account a/nobody: serviceaccount "nobody" not found');
});

test("Priority: class, default, system classes and a number of one's own", async () => {
  const reader = new MemoryReader();
  reader.put(
    priorityClasses,
    object("PriorityClass", { metadata: { name: "high" }, value: 1000 }),
    object("PriorityClass", { metadata: { name: "usual" }, value: 5, globalDefault: true }),
  );
  const priorityOf = async (spec: Record<string, unknown>) => {
    const pod = podWith(spec);
    await admit(new Priority(reader), { resource: "pods", object: pod });
    return pod.spec?.priority;
  };
  expect(await priorityOf({ priorityClassName: "high" })).toBe(1000);
  expect(await priorityOf({})).toBe(5);
  expect(await priorityOf({ priorityClassName: "system-node-critical" })).toBe(2_000_001_000);
  await expect(priorityOf({ priorityClassName: "none" })).rejects.toThrow("no PriorityClass with name none was found");
  await expect(priorityOf({ priority: 7 })).rejects.toThrow("must not be provided in pod spec");
});

test("DefaultStorageClass: fills in, but an empty class stays empty", async () => {
  const annotations = { "storageclass.kubernetes.io/is-default-class": "true" };
  const reader = new MemoryReader().put(
    storageClasses,
    object("StorageClass", { metadata: { name: "local", annotations } }),
  );
  const classOf = async (spec: Record<string, unknown>) => {
    const claim = object<PersistentVolumeClaim>("PersistentVolumeClaim", { spec });
    await admit(new DefaultStorageClass(reader), { resource: "persistentvolumeclaims", object: claim });
    return claim.spec?.storageClassName;
  };
  expect(await classOf({})).toBe("local");
  expect(await classOf({ storageClassName: "" })).toBe("");
});

test("RuntimeClass: overhead is written into the pod, an unknown class is refused", async () => {
  const reader = new MemoryReader().put(
    runtimeClasses,
    object("RuntimeClass", {
      metadata: { name: "gvisor" },
      handler: "runsc",
      overhead: { podFixed: { memory: "40Mi" } },
    }),
  );
  const pod = podWith({ runtimeClassName: "gvisor" });
  await admit(new RuntimeClassAdmission(reader), { resource: "pods", object: pod });
  expect(pod.spec?.overhead).toEqual({ memory: "40Mi" });
  const unknown = admit(new RuntimeClassAdmission(reader), {
    resource: "pods",
    object: podWith({ runtimeClassName: "kata" }),
  });
  await expect(unknown).rejects.toThrow('pod rejected: RuntimeClass "kata" not found');
});

const limits = (item: Record<string, unknown>): LimitRange => object("LimitRange", { spec: { limits: [item] } });

test("LimitRanger: defaults are filled in and noted", async () => {
  const range = limits({
    type: "Container",
    default: { memory: "256Mi" },
    defaultRequest: { cpu: "100m", memory: "128Mi" },
  });
  const pod = sized({ cpu: "1" });
  await admit(new LimitRanger(new MemoryReader().put(limitRanges, range)), { resource: "pods", object: pod });
  expect(pod.spec?.containers[0]?.resources).toEqual({
    requests: { cpu: "1", memory: "128Mi" },
    limits: { memory: "256Mi" },
  });
  expect(pod.metadata.annotations?.["kubernetes.io/limit-ranger"]).toBe(
    "LimitRanger plugin set: memory request for container c; memory limit for container c",
  );
});

test.each([
  [
    "too little",
    { type: "Container", min: { cpu: "100m" } },
    sized({ cpu: "50m" }),
    "minimum cpu usage per Container is 100m, but request is 50m",
  ],
  [
    "nothing said",
    { type: "Container", min: { cpu: "100m" } },
    sized({}),
    "minimum cpu usage per Container is 100m.  No request is specified",
  ],
  [
    "too much",
    { type: "Container", max: { memory: "1Gi" } },
    sized({}, { memory: "2Gi" }),
    "maximum memory usage per Container is 1Gi, but limit is 2Gi",
  ],
  [
    "pod as a whole",
    { type: "Pod", max: { cpu: "1" } },
    podWith({ containers: [1, 2].map((n) => ({ name: `c${n}`, resources: { limits: { cpu: "600m" } } })) }),
    "maximum cpu usage per Pod is 1, but limit is 1200m",
  ],
  [
    "ratio",
    { type: "Container", maxLimitRequestRatio: { cpu: "2" } },
    sized({ cpu: "1" }, { cpu: "3" }),
    "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
  ],
])("LimitRanger: refuses: %s", async (_title, item, pod, message) => {
  const rule = new LimitRanger(new MemoryReader().put(limitRanges, limits(item)));
  await expect(admit(rule, { resource: "pods", object: pod })).rejects.toThrow(`pods "x" is forbidden: ${message}`);
});

const quota = (hard: Record<string, string>, used?: Record<string, string>): ResourceQuota =>
  object("ResourceQuota", {
    metadata: { namespace: "a", name: "q" },
    spec: { hard },
    ...(used === undefined ? {} : { status: { hard, used } }),
  });

test("ResourceQuota: books what fits and refuses what does not", async () => {
  const reader = new MemoryReader().put(
    resourceQuotas,
    quota({ "requests.cpu": "2", pods: "5" }, { "requests.cpu": "1500m", pods: "2" }),
  );
  const rule = new ResourceQuotaAdmission(reader, reader);
  await admit(rule, { resource: "pods", object: sized({ cpu: "500m" }) });
  expect((await reader.get(resourceQuotas, { namespace: "a", name: "q" }))?.status?.used).toEqual({
    "requests.cpu": "2",
    pods: "3",
  });
  await expect(admit(rule, { resource: "pods", object: sized({ cpu: "1" }) })).rejects.toThrow(
    'pods "x" is forbidden: exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2',
  );
});

test("ResourceQuota: a container that does not say how much is refused", async () => {
  const reader = new MemoryReader().put(resourceQuotas, quota({ "limits.memory": "1Gi" }, { "limits.memory": "0" }));
  const rule = new ResourceQuotaAdmission(reader, reader);
  await expect(admit(rule, { resource: "pods", object: podWith() })).rejects.toThrow(
    "failed quota: q: must specify limits.memory for: c",
  );
});

test("ResourceQuota: counts any kind, also before the quota was counted; a dry run books nothing", async () => {
  const reader = new MemoryReader().put(resourceQuotas, quota({ "count/sandboxes.agents.x-k8s.io": "1" }));
  const rule = new ResourceQuotaAdmission(reader, reader);
  const ask = { resource: "sandboxes", group: "agents.x-k8s.io", version: "v1beta1", object: object("Sandbox") };
  await admit(rule, { ...ask, dryRun: true });
  expect((await reader.get(resourceQuotas, { namespace: "a", name: "q" }))?.status).toBeUndefined();
  await admit(rule, ask);
  await expect(admit(rule, ask)).rejects.toThrow("exceeded quota: q");
});

test.each([
  [
    "a claim's class",
    "persistentvolumeclaims",
    "",
    { spec: { storageClassName: "a" } },
    { spec: { storageClassName: "b" } },
    "spec is immutable after creation",
  ],
  [
    "a claim's size, downwards",
    "persistentvolumeclaims",
    "",
    { spec: { resources: { requests: { storage: "2Gi" } } }, status: { phase: "Bound" } },
    { spec: { resources: { requests: { storage: "1Gi" } } } },
    "field can not be less than status.capacity",
  ],
  [
    "a Service's address",
    "services",
    "",
    { spec: { clusterIP: "10.0.0.1" } },
    { spec: { clusterIP: "10.0.0.2" } },
    "may not change once set",
  ],
  [
    "a runtime class's handler",
    "runtimeclasses",
    "node.k8s.io",
    { handler: "a" },
    { handler: "b" },
    'Invalid value: "b": field is immutable',
  ],
  [
    "a storage class's provisioner",
    "storageclasses",
    "storage.k8s.io",
    { provisioner: "a" },
    { provisioner: "b" },
    "updates to provisioner are forbidden.",
  ],
  [
    "a priority class's value",
    "priorityclasses",
    "scheduling.k8s.io",
    { value: 1 },
    { value: 2 },
    "may not be changed in an update.",
  ],
])("ImmutableFields: %s", async (_title, resource, group, before, after, message) => {
  const [oldObject, changed] = [object("X", before), object("X", after)];
  await expect(
    admit(new ImmutableFields(), { verb: "update", resource, group, object: changed, oldObject }),
  ).rejects.toThrow(message);
  await admit(new ImmutableFields(), { verb: "update", resource, group, object: object("X", before), oldObject });
});

test("ImmutableFields: a bound claim may grow", async () => {
  const size = (storage: string) => ({ spec: { resources: { requests: { storage } } }, status: { phase: "Bound" } });
  const ask = {
    verb: "update",
    resource: "persistentvolumeclaims",
    object: object("X", size("2Gi")),
    oldObject: object("X", size("1Gi")),
  } as const;
  expect(await admit(new ImmutableFields(), ask)).toEqual([]);
});

test("NodeRestriction: a node touches itself and its own pods only", async () => {
  const [user, other] = [nodeUser("n"), nodeUser("m")];
  const pod = podWith({ nodeName: "n" }, { uid: "u" });
  const rule = new NodeRestriction(new MemoryReader().put(pods, pod));
  const status = { verb: "update", resource: "pods", subresource: "status", object: pod, oldObject: pod } as const;
  await admit(rule, { ...status, user });
  await expect(admit(rule, { ...status, user: other })).rejects.toThrow(
    "can only update pods with spec.nodeName set to itself",
  );
  const node = object("Node", { metadata: { name: "n" } });
  await admit(rule, { verb: "update", resource: "nodes", object: node, oldObject: node, user });
  await expect(
    admit(rule, { verb: "update", resource: "nodes", object: node, oldObject: node, user: other }),
  ).rejects.toThrow("is not allowed to modify node");
  const token = {
    resource: "serviceaccounts",
    subresource: "token",
    object: object("TokenRequest", { spec: { boundObjectRef: { kind: "Pod", name: "x", uid: "u" } } }),
  };
  await admit(rule, { ...token, user });
  await expect(admit(rule, { ...token, user: other })).rejects.toThrow("scheduled on a different node");
  await expect(admit(rule, { ...token, object: object("TokenRequest", { spec: {} }), user })).rejects.toThrow(
    "not bound to a pod",
  );
});

test("ReservedMetadata: a plain user's address is ignored on create and restored on update", async () => {
  const annotated = (address: string) =>
    object("Sandbox", { metadata: { name: "x", annotations: { "agent-sandbox.dev/address": address, mine: "1" } } });
  const made = annotated("10.200.9.9");
  expect(await admit(new ReservedMetadata(), { resource: "sandboxes", object: made })).toHaveLength(1);
  expect(made.metadata.annotations).toEqual({ mine: "1" });
  const changed = annotated("10.200.9.9");
  await admit(new ReservedMetadata(), {
    verb: "update",
    resource: "sandboxes",
    object: changed,
    oldObject: annotated("10.200.1.1"),
  });
  expect(changed.metadata.annotations?.["agent-sandbox.dev/address"]).toBe("10.200.1.1");
});

function authorizerOf(rules: Record<string, string[]>[]): RbacAuthorizer {
  const index = new RbacIndex();
  index.changeClusterRole(object("ClusterRole", { metadata: { name: "mine" }, rules }), false);
  index.changeClusterRole(
    object("ClusterRole", { metadata: { name: "big" }, rules: [{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }] }),
    false,
  );
  const roleRef = { kind: "ClusterRole", name: "mine" };
  index.changeBinding(
    object("ClusterRoleBinding", { metadata: { name: "b" }, roleRef, subjects: [{ kind: "User", name: "jane" }] }),
    false,
  );
  return new RbacAuthorizer(index);
}

const rbac = { group: "rbac.authorization.k8s.io" };
const readPods = { apiGroups: [""], resources: ["pods"], verbs: ["get"] };

test("RBACEscalation: rights are handed on, never made", async () => {
  const rule = new RbacEscalation(authorizerOf([readPods]));
  const role = (rules: unknown[]) => ({ ...rbac, resource: "roles", object: object("Role", { rules }) });
  expect(await admit(rule, role([readPods]))).toEqual([]);
  await expect(admit(rule, role([{ ...readPods, verbs: ["delete"] }]))).rejects.toThrow(
    'user "jane" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}',
  );
  const bindTo = (name: string) => ({
    ...rbac,
    resource: "rolebindings",
    object: object("RoleBinding", { roleRef: { kind: "ClusterRole", name } }),
  });
  expect(await admit(rule, bindTo("mine"))).toEqual([]);
  await expect(admit(rule, bindTo("big"))).rejects.toThrow("not currently held");
});

test("RBACEscalation: the verbs escalate and bind lift the rule", async () => {
  const rule = new RbacEscalation(
    authorizerOf([{ apiGroups: [rbac.group], resources: ["roles", "clusterroles"], verbs: ["escalate", "bind"] }]),
  );
  await admit(rule, { ...rbac, resource: "roles", object: object("Role", { rules: [readPods] }) });
  await admit(rule, {
    ...rbac,
    resource: "rolebindings",
    object: object("RoleBinding", { roleRef: { kind: "ClusterRole", name: "big" } }),
  });
});
