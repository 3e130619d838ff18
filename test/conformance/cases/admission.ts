import { expect } from "vitest";
import type { Json } from "../api-call.ts";
import { at, configMap, inNamespace, pod } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import { type CaseContext, type Group, kase, table } from "../suite.ts";

const quiet = (path: string, body: Json): Step => ({ do: `POST ${path}`, body, show: "nothing" });
const limitRange = (limits: Json): Json => ({
  apiVersion: "v1",
  kind: "LimitRange",
  metadata: { name: "l" },
  spec: { limits: [limits] },
});
const withResources = (resources: Json): Json => pod("a", { containers: [{ name: "main", image: "x:1", resources }] });
const resourcesOf = ({ spec }: Json): Json => spec.containers.map((each: Json) => each.resources);

const scripts: Script[] = [
  [
    "LimitRange gives defaults",
    quiet(at.limits, limitRange({ type: "Container", default: { cpu: "1" }, defaultRequest: { cpu: "100m" } })),
    { do: `POST ${at.pods}`, body: withResources({}), show: resourcesOf },
  ],
  [
    "LimitRange defaults the request to the limit",
    quiet(at.limits, limitRange({ type: "Container", default: { memory: "64Mi" } })),
    { do: `POST ${at.pods}`, body: withResources({}), show: resourcesOf },
  ],
  [
    "LimitRange refuses above the maximum",
    quiet(at.limits, limitRange({ type: "Container", max: { cpu: "1" } })),
    { do: `POST ${at.pods}`, body: withResources({ limits: { cpu: "2" } }) },
  ],
  [
    "LimitRange refuses below the minimum",
    quiet(at.limits, limitRange({ type: "Container", min: { cpu: "1" } })),
    { do: `POST ${at.pods}`, body: withResources({ requests: { cpu: "500m" }, limits: { cpu: "2" } }) },
  ],
  [
    "LimitRange refuses a ratio too high",
    quiet(at.limits, limitRange({ type: "Container", maxLimitRequestRatio: { cpu: "2" } })),
    { do: `POST ${at.pods}`, body: withResources({ requests: { cpu: "1" }, limits: { cpu: "4" } }) },
  ],
  [
    "LimitRange of Pods refuses the sum",
    quiet(at.limits, limitRange({ type: "Pod", max: { cpu: "1" } })),
    { do: `POST ${at.pods}`, body: withResources({ limits: { cpu: "2" } }) },
  ],
  ["a missing ServiceAccount is refused", { do: `POST ${at.pods}`, body: pod("a", { serviceAccountName: "none" }) }],
  ["a missing priority class is refused", { do: `POST ${at.pods}`, body: pod("a", { priorityClassName: "none" }) }],
  ["a missing runtime class is refused", { do: `POST ${at.pods}`, body: pod("a", { runtimeClassName: "none-$U" }) }],
  [
    "a token volume is mounted",
    { do: `POST ${at.pods}`, body: pod("a"), show: ({ spec }) => [spec.volumes, spec.containers[0].volumeMounts] },
  ],
  [
    "no token volume on demand",
    {
      do: `POST ${at.pods}`,
      body: pod("a", { automountServiceAccountToken: false }),
      show: ({ spec }) => [spec.volumes, spec.containers[0].volumeMounts],
    },
  ],
  [
    "a system priority class outside kube-system is accepted",
    {
      do: `POST ${at.pods}`,
      body: pod("a", { priorityClassName: "system-node-critical" }),
      show: ({ spec }) => [spec.priority, spec.preemptionPolicy],
    },
  ],
  [
    "a label of kubernetes.io on a Pod is accepted",
    {
      do: `POST ${at.pods}`,
      body: pod("a", {}, { labels: { "app.kubernetes.io/name": "x" } }),
      show: ({ metadata }) => metadata.labels,
    },
  ],
];

const levels = table<[level: string, spec: Json, status: number]>(
  [
    [
      "baseline refuses privileged",
      "baseline",
      { containers: [{ name: "m", image: "x", securityContext: { privileged: true } }] },
      403,
    ],
    ["baseline refuses the host network", "baseline", { hostNetwork: true }, 403],
    ["baseline refuses host paths", "baseline", { volumes: [{ name: "h", hostPath: { path: "/" } }] }, 403],
    ["baseline accepts a plain Pod", "baseline", {}, 201],
    ["restricted refuses a plain Pod", "restricted", {}, 403],
    ["restricted accepts a strict Pod", "restricted", strictPod(), 201],
    ["privileged accepts anything", "privileged", { hostNetwork: true, hostPID: true }, 201],
  ].map(([title, ...row]) => [`pod security: ${title}`, ...row] as [string, string, Json, number]),
  async (c, level, spec, status) => {
    const ns = await c.namespace({ "pod-security.kubernetes.io/enforce": level });
    expect((await c.api.call("POST", inNamespace(at.pods, ns), { body: pod("a", spec) })).status).toBe(status);
  },
);

function strictPod(): Json {
  const securityContext = { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } };
  return {
    securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
    containers: [{ name: "m", image: "x", securityContext }],
  };
}

async function quota(c: CaseContext, hard: Json): Promise<string> {
  const ns = await c.namespace();
  await c.create(inNamespace(at.quotas, ns), {
    apiVersion: "v1",
    kind: "ResourceQuota",
    metadata: { name: "q" },
    spec: { hard },
  });
  await c.eventually(async () => (await c.get(`${inNamespace(at.quotas, ns)}/q`)).status?.hard !== undefined);
  return ns;
}

const coded = [
  kase("quota counts objects", async (c) => {
    const ns = await quota(c, { "count/configmaps": "2" });
    await c.create(inNamespace(at.configMaps, ns), configMap("a"));
    const refused = await c.eventually(async () => {
      const answer = await c.api.call("POST", inNamespace(at.configMaps, ns), { body: configMap(c.unique("x")) });
      return answer.status === 403 ? answer.body : undefined;
    });
    expect(refused.message).toContain(
      "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2",
    );
  }),
  kase("quota counts pods", async (c) => {
    const ns = await quota(c, { pods: "1" });
    await c.create(inNamespace(at.pods, ns), pod("a"));
    const refused = await c.api.call("POST", inNamespace(at.pods, ns), { body: pod("b") });
    expect(refused.body.message).toBe(
      'pods "b" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
    );
  }),
  kase("quota insists on requests", async (c) => {
    const ns = await quota(c, { "requests.cpu": "1" });
    const refused = await c.api.call("POST", inNamespace(at.pods, ns), { body: pod("b") });
    expect(refused.body.message).toBe('pods "b" is forbidden: failed quota: q: must specify requests.cpu for: main');
  }),
  kase("quota sums requests", async (c) => {
    const ns = await quota(c, { "requests.cpu": "1" });
    const body = withResources({ requests: { cpu: "800m" } });
    await c.create(inNamespace(at.pods, ns), body);
    const refused = await c.api.call("POST", inNamespace(at.pods, ns), { body: { ...body, metadata: { name: "b" } } });
    expect(refused.body.message).toBe(
      'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=800m, used: requests.cpu=800m, limited: requests.cpu=1',
    );
  }),
  kase("quota is given back", async (c) => {
    const ns = await quota(c, { pods: "1" });
    await c.create(inNamespace(at.pods, ns), pod("a"));
    await c.api.call("DELETE", `${inNamespace(at.pods, ns)}/a?gracePeriodSeconds=0`);
    await c.eventually(
      async () => (await c.api.call("POST", inNamespace(at.pods, ns), { body: pod("b") })).status === 201,
    );
  }),
  kase("quota shows what is used", async (c) => {
    const ns = await quota(c, { pods: "5" });
    await c.create(inNamespace(at.pods, ns), pod("a"));
    await c.eventually(async () => (await c.get(`${inNamespace(at.quotas, ns)}/q`)).status?.used?.pods === "1");
  }),
  kase("pod security warns", async (c) => {
    const ns = await c.namespace({ "pod-security.kubernetes.io/warn": "restricted" });
    const { headers, status } = await c.api.call("POST", inNamespace(at.pods, ns), { body: pod("a") });
    expect(status).toBe(201);
    expect(headers["warning"]).toContain(
      'would violate PodSecurity \\"restricted:latest\\": allowPrivilegeEscalation != false',
    );
  }),
  kase("pod security tells every reason", async (c) => {
    const ns = await c.namespace({ "pod-security.kubernetes.io/enforce": "restricted" });
    const { body } = await c.api.call("POST", inNamespace(at.pods, ns), { body: pod("a") });
    expect(body.message).toBe(
      'pods "a" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main" must set securityContext.allowPrivilegeEscalation=false), ' +
        'unrestricted capabilities (container "main" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true), ' +
        'seccompProfile (pod or container "main" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")',
    );
  }),
];

/** Quota, limits, pod security, accounts. */
export const admissionGroup: Group = {
  name: "admission",
  cases: [...scripted("admission", scripts), ...levels, ...coded],
  breakage: (_request, answer) => (answer.status === 403 ? { ...answer, status: 201 } : answer),
};
