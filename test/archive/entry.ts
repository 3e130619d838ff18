/** An archive of a Sandbox as its index has it. */
export const archiveEntry = {
  id: "0f3a9d52-0000-4000-8000-00000000000a",
  namespace: "default",
  name: "box",
  sandboxUID: "0f3a9d52-0000-4000-8000-000000000003",
  archivedAt: "2026-01-02T03:04:05Z",
  sandbox: { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", metadata: { name: "box", namespace: "default" } },
  address: ["10.203.0.2"],
};

/** Uids of the snapshot that it is made of, and of the one that it comes back as. */
export const [takenUid, backUid] = ["0f3a9d52-0000-4000-8000-000000000001", "0f3a9d52-0000-4000-8000-000000000002"];
