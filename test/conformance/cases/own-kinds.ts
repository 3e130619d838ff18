import type { Json } from "../api-call.ts";
import { patchTypes } from "../api-call.ts";
import { at, sandbox } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const volumeClaim = (name: string): Json => ({
  metadata: { name },
  spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } },
});
const snapshots = "/apis/agent-sandbox.dev/v1alpha1/namespaces/$NS/sandboxsnapshots";
const snapshot = (spec: Json): Json => ({
  apiVersion: "agent-sandbox.dev/v1alpha1",
  kind: "SandboxSnapshot",
  metadata: { name: "a" },
  spec,
});
const extension = (kind: string, spec: Json): Json => ({
  apiVersion: "extensions.agents.x-k8s.io/v1beta1",
  kind,
  metadata: { name: "a" },
  spec,
});
const quiet = (path: string, body: Json): Step => ({ do: `POST ${path}`, body, show: "nothing" });
const patch = (path: string, body: Json): Step => ({
  do: `PATCH ${path}/a`,
  type: patchTypes.merge,
  body,
  show: ({ spec }) => spec,
});
const podTemplate = { spec: { containers: [{ name: "main", image: "example.com/app:1" }] } };
const long = "a".repeat(64);

const template = (spec: Json): Json => extension("SandboxTemplate", { podTemplate, ...(spec as object) });
const sleeping = {
  suspensionStrategy: { type: "Stop" },
  autoSuspension: { inactivityTimeoutSeconds: 600 },
  wakePolicy: "OnTraffic",
  podFailurePolicy: { type: "Recreate" },
};
const templateScripts: Script[] = [
  [
    "SandboxTemplate: fields for sleep and recovery are kept and defaulted",
    { do: `POST ${at.templates}`, body: template(sleeping), show: ({ spec }) => spec },
  ],
  ...Object.entries({
    suspensionStrategy: { type: "Nap" },
    autoSuspension: { inactivityTimeoutSeconds: 0 },
    wakePolicy: "Sometimes",
    podFailurePolicy: { type: "Shrug" },
  }).map(
    ([field, value]): Script => [
      `SandboxTemplate: a bad ${field} is refused`,
      { do: `POST ${at.templates}`, body: template({ ...sleeping, [field]: value }) },
    ],
  ),
  [
    "SandboxTemplate: fields for sleep can be removed",
    quiet(at.templates, template(sleeping)),
    patch(at.templates, { spec: { autoSuspension: null, wakePolicy: null } }),
  ],
];

const scripts: Script[] = [
  [
    "Sandbox: a long name without a Service",
    { do: `POST ${at.sandboxes}`, body: sandbox(long), show: ({ spec }) => spec },
  ],
  [
    "Sandbox: a long name with a Service is refused",
    { do: `POST ${at.sandboxes}`, body: sandbox(long, { service: true }) },
  ],
  [
    "Sandbox: a long name with service false",
    { do: `POST ${at.sandboxes}`, body: sandbox(long, { service: false }), show: ({ spec }) => spec },
  ],
  [
    "Sandbox: volume claim templates cannot be changed",
    quiet(at.sandboxes, sandbox("a", { volumeClaimTemplates: [volumeClaim("v")] })),
    patch(at.sandboxes, { spec: { volumeClaimTemplates: [volumeClaim("w")] } }),
  ],
  [
    "Sandbox: volume claim templates cannot be added",
    quiet(at.sandboxes, sandbox("a")),
    patch(at.sandboxes, { spec: { volumeClaimTemplates: [volumeClaim("w")] } }),
  ],
  [
    "Sandbox: volume claim templates cannot be removed",
    quiet(at.sandboxes, sandbox("a", { volumeClaimTemplates: [volumeClaim("v")] })),
    patch(at.sandboxes, { spec: { volumeClaimTemplates: null } }),
  ],
  [
    "Sandbox: other fields can be changed",
    quiet(at.sandboxes, sandbox("a", { volumeClaimTemplates: [volumeClaim("v")] })),
    patch(at.sandboxes, { spec: { shutdownTime: "2030-01-01T00:00:00Z" } }),
  ],
  ["Sandbox: without a pod template is refused", { do: `POST ${at.sandboxes}`, body: { ...sandbox("a"), spec: {} } }],
  [
    "Sandbox: an unknown mode is refused",
    { do: `POST ${at.sandboxes}`, body: sandbox("a", { operatingMode: "Dancing" }) },
  ],
  [
    "Sandbox: a container without a name is refused",
    { do: `POST ${at.sandboxes}`, body: sandbox("a", { podTemplate: { spec: { containers: [{ image: "x" }] } } }) },
  ],
  [
    "Sandbox: an unknown field is refused when strict",
    { do: `POST ${at.sandboxes}?fieldValidation=Strict`, body: sandbox("a", { podTemplatee: {} }) },
  ],
  [
    "Sandbox: two containers of one name are refused",
    {
      do: `POST ${at.sandboxes}`,
      body: sandbox("a", {
        podTemplate: {
          spec: {
            containers: [
              { name: "m", image: "x" },
              { name: "m", image: "y" },
            ],
          },
        },
      }),
    },
  ],
  [
    "Sandbox: a bad shutdown time is refused",
    { do: `POST ${at.sandboxes}`, body: sandbox("a", { shutdownTime: "tomorrow" }) },
  ],
  [
    "SandboxTemplate: defaults",
    { do: `POST ${at.templates}`, body: extension("SandboxTemplate", { podTemplate }), show: ({ spec }) => spec },
  ],
  [
    "SandboxClaim: without a pool or template is refused",
    { do: `POST ${at.sandboxClaims}`, body: extension("SandboxClaim", {}) },
  ],
  [
    "SandboxClaim: of a pool",
    {
      do: `POST ${at.sandboxClaims}`,
      body: extension("SandboxClaim", { warmPoolRef: { name: "p" } }),
      show: ({ spec }) => spec,
    },
  ],
  [
    "SandboxClaim: an unknown shutdown policy is refused",
    {
      do: `POST ${at.sandboxClaims}`,
      body: extension("SandboxClaim", { warmPoolRef: { name: "p" }, lifecycle: { shutdownPolicy: "Maybe" } }),
    },
  ],
  [
    "SandboxWarmPool: negative replicas are refused",
    { do: `POST ${at.pools}`, body: extension("SandboxWarmPool", { replicas: -1, sandboxTemplateRef: { name: "t" } }) },
  ],
  [
    "SandboxWarmPool: defaults",
    {
      do: `POST ${at.pools}`,
      body: extension("SandboxWarmPool", { replicas: 1, sandboxTemplateRef: { name: "t" } }),
      show: ({ spec }) => spec,
    },
  ],
  [
    "SandboxWarmPool: scale",
    quiet(at.pools, extension("SandboxWarmPool", { replicas: 1, sandboxTemplateRef: { name: "t" } })),
    { do: `PATCH ${at.pools}/a/scale`, type: patchTypes.merge, body: { spec: { replicas: 3 } } },
  ],
  [
    "SandboxSnapshot: the sandbox cannot be changed",
    quiet(snapshots, snapshot({ sandboxName: "s" })),
    patch(snapshots, { spec: { sandboxName: "t" } }),
  ],
  [
    "SandboxSnapshot: memory cannot be changed",
    quiet(snapshots, snapshot({ sandboxName: "s", memory: false })),
    patch(snapshots, { spec: { memory: true } }),
  ],
  [
    "SandboxSnapshot: can be made",
    { do: `POST ${snapshots}`, body: snapshot({ sandboxName: "s" }), show: ({ spec }) => spec },
  ],
];

/** The rules, defaults and limits of our own kinds. */
export const ownKinds: Group = {
  name: "own-kinds",
  cases: scripted("own-kinds", [...scripts, ...templateScripts]),
  breakage: (_request, answer) => (answer.status === 422 ? { ...answer, status: 200 } : answer),
};
