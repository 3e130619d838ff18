import {
  ApiError,
  ignore,
  type KubeObject,
  type OwnerReference,
  parseApiVersion,
  type Resource,
  refersTo,
} from "@agent-sandbox/api";
import { type Controller, defineController, done, type Outcome, type WorkQueue } from "@agent-sandbox/kube";
import type { EveryObject, ObjectIdentity } from "../every-object.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";
import {
  type Action,
  foregroundFinalizer,
  type Observed,
  type OwnerState,
  orphanFinalizer,
  planCollection,
} from "./plan.ts";

/** Deletes what has lost its owners, and carries out foreground and orphaning deletes. Keys are uids. */
export function garbageCollection(context: StandinContext, everyObject: EveryObject): Controller {
  const collector = new Collector(context, everyObject);
  return defineController({
    name: "garbage-collection",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [everyObject],
    observe: (queue) => collector.observe(queue),
    reconcile: (uid, signal) => collector.reconcile(uid, signal),
  });
}

class Collector {
  readonly #context: StandinContext;
  readonly #everyObject: EveryObject;
  #queue: WorkQueue | undefined;

  constructor(context: StandinContext, everyObject: EveryObject) {
    this.#context = context;
    this.#everyObject = everyObject;
  }

  observe(queue: WorkQueue): void {
    this.#queue = queue;
    this.#everyObject.onChange(({ object }, deleted) => {
      const { uid = "", ownerReferences = [], deletionTimestamp, finalizers = [] } = object.metadata;
      if (deleted) {
        for (const dependent of this.#everyObject.dependentsOf(uid)) queue.add(dependent.object.metadata.uid ?? "");
      } else if (ownerReferences.length > 0 || waitsForUs(deletionTimestamp, finalizers)) {
        queue.add(uid);
      }
      // Its owners may wait for it to go, or to stop blocking.
      for (const owner of ownerReferences) if (this.#isDeleting(owner.uid)) queue.add(owner.uid);
    });
  }

  #isDeleting(uid: string): boolean {
    return this.#everyObject.get(uid)?.object.metadata.deletionTimestamp !== undefined;
  }

  async reconcile(uid: string, signal: AbortSignal): Promise<Outcome> {
    const cached = this.#everyObject.get(uid);
    if (cached === undefined || this.#hasNothingToDo(cached)) return done;
    const observed = await this.#observeLive(cached, signal);
    if (observed === undefined) return done;
    const actions = planCollection(observed);
    for (const action of actions) await this.#apply(action, { ...cached, object: observed.object }, signal);
    return { kind: "done", actions: actions.length };
  }

  /** Owners that the cache has are alive; only where one is missing or going is the server asked. */
  #hasNothingToDo({ object }: ObjectIdentity): boolean {
    const { ownerReferences = [], deletionTimestamp, finalizers = [] } = object.metadata;
    if (deletionTimestamp !== undefined) return !waitsForUs(deletionTimestamp, finalizers);
    return ownerReferences.every((reference) => {
      const owner = this.#everyObject.get(reference.uid);
      return owner !== undefined && isReferenceTo(owner, reference, object) && !this.#isDeleting(reference.uid);
    });
  }

  async #observeLive({ resource, object }: ObjectIdentity, signal: AbortSignal): Promise<Observed | undefined> {
    const { namespace, name, uid = "" } = object.metadata;
    const live = await this.#liveObject(resource, { name, ...(namespace === undefined ? {} : { namespace }) }, signal);
    if (live?.metadata.uid !== uid) return undefined;
    const owners = await Promise.all(
      (live.metadata.ownerReferences ?? []).map((reference) => this.#ownerState(reference, namespace, signal)),
    );
    const found = await this.#dependentsOf({ resource, object: live }, signal);
    const dependents = found.map(({ object: { metadata } }) => ({
      uid: metadata.uid ?? "",
      blocks: (metadata.ownerReferences ?? []).some((owner) => owner.uid === uid && owner.blockOwnerDeletion === true),
    }));
    return { object: live, owners, dependents };
  }

  /**
   * The cache, except for an orphaning delete: a dependent that the cache has not seen yet would lose its owner without being
   * let go, and then be deleted because its owner is absent. Such deletes are rare enough to ask the server for everything.
   */
  async #dependentsOf(owner: ObjectIdentity, signal: AbortSignal): Promise<ObjectIdentity[]> {
    const { uid = "", namespace, finalizers = [] } = owner.object.metadata;
    const isDependent = ({ object }: ObjectIdentity): boolean =>
      (object.metadata.ownerReferences ?? []).some((reference) => isReferenceTo(owner, reference, object));
    if (!finalizers.includes(orphanFinalizer)) return this.#everyObject.dependentsOf(uid).filter(isDependent);
    const kinds = this.#everyObject.resources().filter(({ namespaced }) => namespaced || namespace === undefined);
    const lists = await Promise.all(
      kinds.map(async (resource) => {
        const options = { signal, ...(namespace === undefined ? {} : { namespace }) };
        const { items } = await this.#context.client.list(resource, options);
        return items.map((object) => ({ resource, object }));
      }),
    );
    return lists.flat().filter(isDependent);
  }

  async #ownerState(
    reference: OwnerReference,
    namespace: string | undefined,
    signal: AbortSignal,
  ): Promise<OwnerState> {
    const { group } = parseApiVersion(reference.apiVersion);
    const resource = this.#everyObject.resourceOf(group, reference.kind);
    if (resource === undefined) return { reference, state: "unknown" };
    const key = { name: reference.name, ...(resource.namespaced && namespace !== undefined ? { namespace } : {}) };
    // A namespaced owner of a cluster-scoped object cannot be named, so that it cannot exist.
    if (resource.namespaced && namespace === undefined) return { reference, state: "absent" };
    const owner = await this.#liveObject(resource, key, signal);
    if (owner?.metadata.uid !== reference.uid) return { reference, state: "absent" };
    const { deletionTimestamp, finalizers = [] } = owner.metadata;
    const isWaiting = deletionTimestamp !== undefined && finalizers.includes(foregroundFinalizer);
    return { reference, state: isWaiting ? "deleting-dependents" : "present" };
  }

  async #liveObject(
    resource: Resource<KubeObject>,
    key: { namespace?: string; name: string },
    signal: AbortSignal,
  ): Promise<KubeObject | undefined> {
    return this.#context.client.get(resource, key, { signal }).catch(ignore("NotFound"));
  }

  async #apply(action: Action, identity: ObjectIdentity, signal: AbortSignal): Promise<void> {
    const { resource, object } = identity;
    const { namespace, name, uid = "", resourceVersion = "" } = object.metadata;
    const key = { name, ...(namespace === undefined ? {} : { namespace }) };
    switch (action.do) {
      case "delete": {
        const options = { uid, resourceVersion, propagationPolicy: action.propagationPolicy, signal };
        await this.#context.client.delete(resource, key, options).catch(ignore("NotFound"));
        return;
      }
      case "drop-owners":
        return this.#patchOwners(identity, action.uids, signal);
      case "drop-finalizer": {
        const finalizers = (object.metadata.finalizers ?? []).filter((finalizer) => finalizer !== action.finalizer);
        return this.#patchMetadata(identity, { finalizers: finalizers.length === 0 ? null : finalizers }, signal);
      }
      case "release-dependents":
        for (const dependent of await this.#dependentsOf(identity, signal))
          await this.#patchOwners(dependent, [uid], signal);
        return;
      case "visit-dependents":
        for (const dependent of action.uids) this.#queue?.add(dependent);
        return;
      default:
        return action satisfies never;
    }
  }

  async #patchOwners(identity: ObjectIdentity, uids: readonly string[], signal: AbortSignal): Promise<void> {
    const left = (identity.object.metadata.ownerReferences ?? []).filter(({ uid }) => !uids.includes(uid));
    await this.#patchMetadata(identity, { ownerReferences: left.length === 0 ? null : left }, signal);
  }

  /** The uid and version in the body are preconditions: a namesake or a later writer turns the patch into a conflict. */
  async #patchMetadata(
    { resource, object }: ObjectIdentity,
    change: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<void> {
    const { namespace, name, uid, resourceVersion } = object.metadata;
    const key = { name, ...(namespace === undefined ? {} : { namespace }) };
    const body = { metadata: { uid, resourceVersion, ...change } };
    await this.#context.client.patch(resource, key, { type: "merge", body }, { signal }).catch((error: unknown) => {
      if (error instanceof ApiError && error.reason === "NotFound") return;
      throw error;
    });
  }
}

/**
 * Whether a reference of `dependent` is to that very owner: as in Kubernetes an owner is of the same namespace or of none, and what refers to another
 * namespace has an absent owner, however alive the object with that uid is.
 */
function isReferenceTo(
  { resource, object: owner }: ObjectIdentity,
  reference: OwnerReference,
  dependent: KubeObject,
): boolean {
  const { name, uid, namespace } = owner.metadata;
  const isNear = !resource.namespaced || namespace === dependent.metadata.namespace;
  return reference.uid === uid && reference.name === name && refersTo(reference, resource) && isNear;
}

function waitsForUs(deletionTimestamp: string | undefined, finalizers: readonly string[]): boolean {
  return (
    deletionTimestamp !== undefined &&
    (finalizers.includes(foregroundFinalizer) || finalizers.includes(orphanFinalizer))
  );
}
