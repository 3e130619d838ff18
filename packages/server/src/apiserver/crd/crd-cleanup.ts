import { ApiError, asJson, type KubeObject } from "@agent-sandbox/api";
import { backoffMs, type Clock, passBackoff } from "@agent-sandbox/kube";
import type { Logger } from "../../telemetry/logger.ts";
import { formatTime } from "../json/format-time.ts";
import { objectAt, stringAt } from "../json/json.ts";
import type { Registry } from "../registry/registry.ts";
import type { ResourceDefinition } from "../registry/resource-definition.ts";
import { type ApiRequest, type ApiResponse, isWholeBody } from "../request/api-request.ts";
import { listPrefix } from "../storage/object-key.ts";
import { isStoreConflict, type ObjectStorage } from "../storage/object-storage.ts";
import { cleanupFinalizer } from "./cleanup-finalizer.ts";
import { type ConditionFacts, withTerminating } from "./crd-conditions.ts";

/** What the clean-up works with. */
export interface CrdCleanupOptions {
  readonly storage: ObjectStorage;
  readonly registry: Registry;
  readonly clock: Clock;
  readonly logger: Logger;
  /** In [0, 1), spreads the retries. */
  readonly random: () => number;
  /** The server's own front door, so that every object is deleted with all checks and events. */
  readonly handle: (request: ApiRequest) => Promise<ApiResponse>;
}

/** Who deletes the objects of a deleted CRD. */
const cleaner = { username: "system:apiserver", groups: ["system:masters"] };

/** Failed deletes that a condition names; one message has room for 32 KiB in Kubernetes, and the log has them all. */
const namedFailuresMax = 10;

/** One CRD on its way out. */
interface Removal {
  readonly name: string;
  readonly uid: string | undefined;
  /** Whether every object was asked to go; what is left waits for its finalizers. */
  isSwept: boolean;
  isRunning: boolean;
  /** The clean-up itself is changing the CRD. */
  isWriting: boolean;
  /** Something happened while a pass was running. */
  isStale: boolean;
  failures: number;
  stopTimer: () => void;
}

/**
 * Deletes the objects of CRDs that are being deleted, and then the CRDs themselves. What fails is logged, written into the
 * condition `Terminating` in the words of Kubernetes, and tried again by backoff.
 */
export class CrdCleanup implements Disposable {
  readonly #options: CrdCleanupOptions;
  readonly #subscription: Disposable;
  /** Bound: the CRDs there are. */
  readonly #removals = new Map<string, Removal>();
  #isClosed = false;

  constructor(options: CrdCleanupOptions) {
    this.#options = options;
    this.#subscription = options.storage.onWrite((definition, row) => this.#onWrite(definition, row.deleted));
  }

  /** Begins to clean up after a CRD, or looks again at one that changed. Never throws. */
  begin({ metadata: { name, uid } }: KubeObject): void {
    const known = this.#removals.get(name);
    const isSame = known !== undefined && known.uid === uid;
    if (this.#isClosed || (isSame && known.isWriting)) return;
    if (known !== undefined && !isSame) known.stopTimer();
    const removal = isSame ? known : newRemoval(name, uid);
    this.#removals.set(name, removal);
    // An object may have come since the last look.
    removal.isSwept = false;
    this.#wake(removal);
  }

  /** The last object of a deleted kind lets its CRD go. */
  #onWrite(definition: ResourceDefinition, isDeleted: boolean): void {
    if (!isDeleted || definition.custom === undefined) return;
    const removal = this.#removals.get(definition.custom.crdName);
    if (removal !== undefined) this.#wake(removal);
  }

  /** Runs a pass behind the write that is just being answered; one that runs already runs once more. */
  #wake(removal: Removal): void {
    removal.isStale = true;
    if (removal.isRunning) return;
    removal.isRunning = true;
    queueMicrotask(() => void this.#run(removal));
  }

  async #run(removal: Removal): Promise<void> {
    removal.stopTimer();
    while (removal.isStale && !this.#isClosed) {
      removal.isStale = false;
      try {
        await this.#pass(removal);
        removal.failures = 0;
      } catch (error) {
        if (!this.#isClosed) this.#retryLater(removal, error);
        break;
      }
    }
    removal.isRunning = false;
  }

  #retryLater(removal: Removal, error: unknown): void {
    const { clock, logger, random } = this.#options;
    const retryInMs = backoffMs(removal.failures, passBackoff, random);
    removal.failures += 1;
    // A conflict means that another write of the CRD came first; the next pass reads it.
    if (!isStoreConflict(error)) {
      logger.warn({ err: error, crd: removal.name, retryInMs }, "clean-up of a CustomResourceDefinition failed");
    }
    removal.stopTimer = clock.setTimer(retryInMs, () => this.#wake(removal));
  }

  async #pass(removal: Removal): Promise<void> {
    const crd = this.#stored(removal);
    if (crd === undefined) return this.#forget(removal);
    const definition = this.#definitionOf(crd);
    // A kind that was never served has no objects.
    if (definition === undefined) return this.#finish(removal, neverEstablished);
    if (!removal.isSwept) {
      const failures = await this.#sweep(definition);
      if (failures.length > 0) {
        await this.#write(removal, deletionFailed(failures));
        throw new AggregateError(failures, failures.map(({ message }) => message).join(", "));
      }
      removal.isSwept = true;
    }
    const isEmpty = this.#list(definition, 1).length === 0;
    return isEmpty ? this.#finish(removal, deletionCompleted) : this.#write(removal, deletionInProgress);
  }

  /** Asks every object to go; returns why some were not. */
  async #sweep(definition: ResourceDefinition): Promise<Error[]> {
    const failures: Error[] = [];
    for (const row of this.#list(definition)) {
      const { namespace, name, deletionTimestamp } = this.#options.storage.read(definition, row).metadata;
      if (deletionTimestamp !== undefined) continue;
      const failure = await this.#delete(definition, { namespace, name });
      if (failure !== undefined) failures.push(failure);
    }
    return failures;
  }

  #list(definition: ResourceDefinition, limit?: number) {
    const prefix = listPrefix(definition);
    return this.#options.storage.store.list({ prefix, ...(limit === undefined ? {} : { limit }) }).rows;
  }

  async #delete(
    { group, resource, versions, storageVersion }: ResourceDefinition,
    { namespace, name }: { namespace: string | undefined; name: string },
  ): Promise<Error | undefined> {
    const served = versions.filter((version) => version.served);
    const version = served.find((each) => each.name === storageVersion) ?? served[0];
    if (version === undefined) return new Error(`no version of ${resource}.${group} is served`);
    const scope = namespace === undefined ? "" : `/namespaces/${namespace}`;
    const path = `/apis/${group}/${version.name}${scope}/${resource}/${name}`;
    const { status, body } = await this.#options.handle({ method: "DELETE", path, user: cleaner });
    if (status < 300 || status === 404) return undefined;
    const answer: unknown = isWholeBody(body) ? JSON.parse(Buffer.concat(body).toString()) : {};
    const cause = ApiError.fromStatus(answer as never, status);
    return new Error(`${namespace === undefined ? "" : `${namespace}/`}${name}: ${cause.message}`, { cause });
  }

  /** Takes our finalizer off the CRD, which goes unless there are others. */
  async #finish(removal: Removal, facts: ConditionFacts): Promise<void> {
    await this.#write(removal, facts, (crd) => {
      const finalizers = (crd.metadata.finalizers ?? []).filter((name) => name !== cleanupFinalizer);
      return { ...crd, metadata: { ...crd.metadata, finalizers } };
    });
    this.#forget(removal);
  }

  /** Lets go of a removal, unless another CRD has its name by now. */
  #forget(removal: Removal): void {
    if (this.#removals.get(removal.name) === removal) this.#removals.delete(removal.name);
  }

  /** Writes the condition, and what else changes with it; nothing where nothing changes. */
  async #write(
    removal: Removal,
    facts: ConditionFacts,
    change: (crd: KubeObject) => KubeObject = (crd) => crd,
  ): Promise<void> {
    const { storage, clock } = this.#options;
    const crds = this.#crds();
    const stored = storage.get(crds, { name: removal.name });
    if (stored === undefined || stored.object.metadata.uid !== removal.uid) return;
    const object = change(withTerminating(stored.object, facts, formatTime(clock.nowMs())));
    if (object === stored.object) return;
    const remove = (object.metadata.finalizers ?? []).length === 0;
    removal.isWriting = true;
    try {
      await storage.write(crds, { object, expectedRevision: stored.row.revision, remove });
    } finally {
      removal.isWriting = false;
    }
  }

  /** The CRD as it is stored, while it is the one that is to go. */
  #stored({ name, uid }: Removal): KubeObject | undefined {
    const crd = this.#options.storage.get(this.#crds(), { name })?.object;
    return crd?.metadata.uid === uid && crd?.metadata.deletionTimestamp !== undefined ? crd : undefined;
  }

  #definitionOf(crd: KubeObject): ResourceDefinition | undefined {
    const spec = objectAt(asJson(crd), "spec");
    const plural = stringAt(objectAt(spec, "names"), "plural") ?? "";
    const found = this.#options.registry.find(stringAt(spec, "group") ?? "", plural);
    return found?.custom?.crdName === crd.metadata.name ? found : undefined;
  }

  #crds(): ResourceDefinition {
    const crds = this.#options.registry.find("apiextensions.k8s.io", "customresourcedefinitions");
    if (crds === undefined) throw new Error("bug: CustomResourceDefinition is not a built-in kind");
    return crds;
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#subscription[Symbol.dispose]();
    for (const removal of this.#removals.values()) removal.stopTimer();
    this.#removals.clear();
  }
}

function newRemoval(name: string, uid: string | undefined): Removal {
  const stopTimer = (): void => undefined;
  return { name, uid, isSwept: false, isRunning: false, isWriting: false, isStale: false, failures: 0, stopTimer };
}

const neverEstablished: ConditionFacts = {
  status: "False",
  reason: "NeverEstablished",
  message: "resource was never established",
};
const deletionInProgress: ConditionFacts = {
  status: "True",
  reason: "InstanceDeletionInProgress",
  message: "CustomResource deletion is in progress",
};
const deletionCompleted: ConditionFacts = {
  status: "False",
  reason: "InstanceDeletionCompleted",
  message: "removed all instances",
};

function deletionFailed(failures: readonly Error[]): ConditionFacts {
  const named = failures.slice(0, namedFailuresMax).map(({ message }) => message);
  const rest = failures.length > named.length ? [`and ${failures.length - named.length} more`] : [];
  const all = [...named, ...rest];
  const text = all.length === 1 ? all[0] : `[${all.join(", ")}]`;
  return { status: "True", reason: "InstanceDeletionFailed", message: `could not issue all deletes: ${text}` };
}
