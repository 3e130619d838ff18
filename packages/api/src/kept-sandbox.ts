import { isJsonObject, type JsonObject } from "./json-value.ts";
import type { Sandbox, SandboxArchive } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";
import { asJson, asObject, type OwnerReference } from "./meta.ts";

/** What the engine writes to a Sandbox about one of its lives; another life has its own. */
const ownAnnotations: readonly string[] = [
  annotationKeys.address,
  annotationKeys.archiveCalledOff,
  annotationKeys.coldStart,
  annotationKeys.lastActivityAt,
  annotationKeys.podName,
  annotationKeys.podReplacements,
  annotationKeys.restartFrom,
  annotationKeys.suspendedAt,
  annotationKeys.traceContext,
];

/**
 * A Sandbox as it is to come back from the archive: what its user gave it. The snapshot that it was once started from is left out, because it has files
 * of its own since, and so are an owner's `controller` and `blockOwnerDeletion`, which no archived Sandbox has a use for.
 */
export function keptSandbox(sandbox: Sandbox): JsonObject {
  const { name, namespace, labels, annotations = {}, ownerReferences } = sandbox.metadata;
  const given = Object.entries(annotations).filter(([key]) => !ownAnnotations.includes(key));
  const { restoreFrom: _restoreFrom, ...spec } = sandbox.spec;
  const kept = {
    apiVersion: sandbox.apiVersion,
    kind: sandbox.kind,
    metadata: {
      name,
      ...(namespace !== undefined && { namespace }),
      ...(labels !== undefined && { labels }),
      ...(given.length > 0 && { annotations: Object.fromEntries(given) }),
      ...(ownerReferences !== undefined && { ownerReferences: ownerReferences.map(plainReference) }),
    },
    spec,
  };
  return asJson(kept);
}

/** The same reference as one that only ends the object with its owner. */
export function plainReference({ apiVersion, kind, name, uid }: OwnerReference): OwnerReference {
  return { apiVersion, kind, name, uid };
}

/**
 * The Sandbox that an archive brings back, to be started from that snapshot. It is wanted, so that it runs whatever it did before; a time of its end that
 * has passed meanwhile is left out. Undefined where the archive has no Sandbox of its own name.
 */
export function sandboxToRecall(archive: SandboxArchive, snapshotName: string, nowMs: number): Sandbox | undefined {
  const kept = sandboxOf(archive);
  if (kept === undefined) return undefined;
  const { shutdownTime, ...spec } = kept.spec;
  const isOver = shutdownTime !== undefined && Date.parse(shutdownTime) <= nowMs;
  return {
    ...kept,
    spec: {
      ...spec,
      ...(shutdownTime !== undefined && !isOver && { shutdownTime }),
      operatingMode: "Running",
      restoreFrom: { snapshotName },
    },
  };
}

/** The Sandbox that an archive keeps, where it is one of the archive's own name and namespace. */
export function sandboxOf({ metadata, status }: SandboxArchive): Sandbox | undefined {
  const kept = status?.sandbox;
  if (!isJsonObject(kept) || !isJsonObject(kept["metadata"]) || !isJsonObject(kept["spec"])) return undefined;
  const { name, namespace } = kept["metadata"];
  if (kept["kind"] !== "Sandbox" || name !== metadata.name || namespace !== metadata.namespace) return undefined;
  return asObject<Sandbox>(kept);
}
