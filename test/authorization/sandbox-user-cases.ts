/** Changes of a Sandbox by merge patch, for callers that hold `patch` on Sandboxes and not `update`. */

/** The container of the Sandbox that is changed. */
export const container = { name: "main", image: "example.com/app:1" };
/** A change of the Pod that a Sandbox makes. */
export const podSpec = (spec: object): object => ({ spec: { podTemplate: { spec } } });

/** What such a caller must not change: who changes it takes over what the Pod may reach, or what others decide by. */
export const attacks: Readonly<Record<string, object>> = {
  "another service account": podSpec({ serviceAccountName: "admin" }),
  "a mounted token": podSpec({ automountServiceAccountToken: true }),
  "the environment of a Secret": podSpec({ containers: [{ ...container, envFrom: [{ secretRef: { name: "s" } }] }] }),
  "a volume of a Secret": podSpec({ volumes: [{ name: "s", secret: { secretName: "s" } }] }),
  "a directory of the host": podSpec({ volumes: [{ name: "h", hostPath: { path: "/" } }] }),
  "another image": podSpec({ containers: [{ ...container, image: "example.com/other" }] }),
  "another runtime": podSpec({ runtimeClassName: "runc" }),
  "labels of the Pod": { spec: { podTemplate: { metadata: { labels: { a: "b" } } } } },
  "labels of the Sandbox": { metadata: { labels: { "agents.x-k8s.io/claim-uid": "u" } } },
  "an annotation": { metadata: { annotations: { "agents.x-k8s.io/pod-name": "another" } } },
  "a service": { metadata: { annotations: { "agent-sandbox.dev/services": '[{"name":"a","command":["id"]}]' } } },
  "a finalizer": { metadata: { finalizers: ["example.com/hold"] } },
  "an owner": { metadata: { ownerReferences: [{ apiVersion: "v1", kind: "ConfigMap", name: "x", uid: "u" }] } },
  "a Service": { spec: { service: true } },
  "the way it sleeps": { spec: { autoSuspension: { inactivityTimeoutSeconds: 1 } } },
  "a service account beside a suspension": {
    spec: { operatingMode: "Suspended", podTemplate: { spec: { serviceAccountName: "admin" } } },
  },
};

/** What the role `sandbox-user` is for. */
export const uses: Readonly<Record<string, object>> = {
  "suspend it": { spec: { operatingMode: "Suspended", wakePolicy: "OnTraffic" } },
  "suspend it from this moment on": {
    spec: { operatingMode: "Suspended", wakePolicy: "Never" },
    metadata: { annotations: { "agent-sandbox.dev/suspended-at": null } },
  },
  "resume it": { spec: { operatingMode: "Running" } },
  "resume it without its saved memory": {
    spec: { operatingMode: "Running" },
    metadata: { annotations: { "agent-sandbox.dev/cold-start": "1767225600000" } },
  },
  "set when it ends": { spec: { shutdownTime: "2026-04-01T00:00:00Z", shutdownPolicy: "Delete" } },
  "take its end away": { spec: { shutdownTime: null, shutdownPolicy: null } },
  "report activity": { metadata: { annotations: { "agent-sandbox.dev/last-activity-at": "2026-03-01T10:00:00Z" } } },
};
