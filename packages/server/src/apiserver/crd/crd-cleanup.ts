import { asJson, type KubeObject } from "@agent-sandbox/api";
import { objectAt, stringAt } from "../json/json.ts";
import type { Registry } from "../registry/registry.ts";
import type { ResourceDefinition } from "../registry/resource-definition.ts";
import type { ApiRequest, ApiResponse } from "../request/api-request.ts";
import { isWholeBody } from "../request/api-request.ts";
import { listPrefix } from "../storage/object-key.ts";
import { isStoreConflict, type ObjectStorage } from "../storage/object-storage.ts";
import { cleanupFinalizer } from "./cleanup-finalizer.ts";

/** The parts of the server that the clean-up reads and writes. */
export interface CleanupParts {
  readonly storage: ObjectStorage;
  readonly registry: Registry;
}

/** Who deletes the objects of a deleted CRD. */
const cleaner = { username: "system:apiserver", groups: ["system:masters"] };

/** Deletes the objects of CRDs that are being deleted, and then the CRDs themselves. */
export class CrdCleanup {
  readonly #parts: CleanupParts;
  readonly #handle: (request: ApiRequest) => Promise<ApiResponse>;
  /** Bound: the CRDs there are. */
  readonly #deleting = new Map<string, KubeObject>();

  constructor(parts: CleanupParts, handle: (request: ApiRequest) => Promise<ApiResponse>) {
    this.#parts = parts;
    this.#handle = handle;
  }

  /** Begins to clean up after a CRD; safe to repeat. Never rejects: a failure leaves the CRD for the next change. */
  begin(crd: KubeObject): void {
    this.#deleting.set(crd.metadata.name ?? "", crd);
    void this.#sweep(crd).catch(() => undefined);
  }

  /** To be told of every write: the last object of a deleted kind lets its CRD go. */
  onWrite(definition: ResourceDefinition, isDeleted: boolean): void {
    const crd =
      isDeleted && definition.custom !== undefined ? this.#deleting.get(definition.custom.crdName) : undefined;
    if (crd !== undefined) queueMicrotask(() => void this.#finish(crd, definition).catch(() => undefined));
  }

  async #sweep(crd: KubeObject): Promise<void> {
    const spec = objectAt(asJson(crd), "spec");
    const group = stringAt(spec, "group") ?? "";
    const definition = this.#parts.registry.find(group, stringAt(objectAt(spec, "names"), "plural") ?? "");
    // A kind that was never served has no objects.
    if (definition === undefined) return this.#finish(crd, undefined);
    const { rows } = this.#parts.storage.store.list({ prefix: listPrefix(definition) });
    for (const row of rows) {
      const { namespace, name } = this.#parts.storage.read(definition, row).metadata;
      const scope = namespace === undefined ? "" : `/namespaces/${namespace}`;
      await this.#delete(`/apis/${group}/${definition.storageVersion}${scope}/${definition.resource}/${name}`);
    }
    await this.#finish(crd, definition);
  }

  async #delete(path: string): Promise<void> {
    const response = await this.#handle({ method: "DELETE", path, user: cleaner });
    if (!isWholeBody(response.body)) throw new Error(`bug: a delete of ${path} was answered by a stream`);
  }

  async #finish(crd: KubeObject, definition: ResourceDefinition | undefined): Promise<void> {
    const { storage, registry } = this.#parts;
    if (definition !== undefined && storage.store.list({ prefix: listPrefix(definition), limit: 1 }).rows.length > 0)
      return;
    const crds = registry.find("apiextensions.k8s.io", "customresourcedefinitions");
    const stored = crds === undefined ? undefined : storage.get(crds, { name: crd.metadata.name ?? "" });
    if (crds === undefined || stored === undefined || stored.object.metadata.deletionTimestamp === undefined) return;
    const finalizers = (stored.object.metadata.finalizers ?? []).filter((name) => name !== cleanupFinalizer);
    const object = { ...stored.object, metadata: { ...stored.object.metadata, finalizers } };
    const write = { object, expectedRevision: stored.row.revision, remove: finalizers.length === 0 };
    await storage.write(crds, write).catch((error: unknown) => {
      // Somebody else changed the CRD; that change begins the clean-up again.
      if (!isStoreConflict(error)) throw error;
    });
    if (finalizers.length === 0) this.#deleting.delete(crd.metadata.name ?? "");
  }
}
