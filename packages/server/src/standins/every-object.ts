import {
  type CustomResourceDefinition,
  customResourceDefinitions,
  type KubeObject,
  type Resource,
} from "@agent-sandbox/api";
import { Informer } from "@agent-sandbox/kube";
import type { StandinContext } from "./standin-context.ts";

/** What is kept of an object: who it is, whom it belongs to, and how it ends. */
export interface ObjectIdentity {
  readonly resource: Resource<KubeObject>;
  readonly object: KubeObject;
}

/** Told of each change of any object; `object` is stripped to its metadata. */
export type AnyObjectHandler = (identity: ObjectIdentity, deleted: boolean) => void;

/** Index of objects by the uids of their owners. */
const byOwner = "owner";
const byNamespace = "namespace";

/** Event kinds never own and are never owned; they would be most of the traffic. */
const ignoredResources = new Set(["/events", "events.k8s.io/events"]);

interface DiscoveredResource {
  readonly name: string;
  readonly kind: string;
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
}

interface Watched {
  readonly resource: Resource<KubeObject>;
  readonly informer: Informer<KubeObject>;
  readonly stop: AbortController;
}

/**
 * The metadata of every object of every kind that can be listed, watched and deleted; kinds come and go with their
 * definitions. Bound: one entry per stored object.
 */
export class EveryObject {
  readonly #context: StandinContext;
  readonly #watched = new Map<string, Watched>();
  readonly #byUid = new Map<string, ObjectIdentity>();
  readonly #handlers = new Set<AnyObjectHandler>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #definitions: Informer<CustomResourceDefinition>;
  readonly #running = new Set<Promise<void>>();
  #discovering: Promise<void> = Promise.resolve();

  constructor(context: StandinContext) {
    this.#context = context;
    const { client, clock } = context;
    this.#definitions = new Informer({
      client,
      clock,
      resource: customResourceDefinitions,
      transform: definitionEssence,
    });
  }

  /** Adds a handler; call it before `run`. */
  onChange(handler: AnyObjectHandler): void {
    this.#handlers.add(handler);
  }

  /** Resolves when every kind known at the start has been listed. */
  async synced(signal: AbortSignal): Promise<void> {
    const { promise, reject } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    await Promise.race([this.#ready.promise, promise]);
  }

  /** The object with that uid, wherever it is. */
  get(uid: string): ObjectIdentity | undefined {
    return this.#byUid.get(uid);
  }

  /** Everything that names the uid as an owner. */
  dependentsOf(uid: string): ObjectIdentity[] {
    return this.#collect((informer) => informer.byIndex(byOwner, uid));
  }

  /** Everything in a namespace. */
  inNamespace(namespace: string): ObjectIdentity[] {
    return this.#collect((informer) => informer.byIndex(byNamespace, namespace));
  }

  /** How many objects of a kind a namespace has. */
  countIn({ group, resource }: Pick<Resource<KubeObject>, "group" | "resource">, namespace: string): number {
    return this.#watched.get(`${group}/${resource}`)?.informer.countByIndex(byNamespace, namespace) ?? 0;
  }

  #collect(read: (informer: Informer<KubeObject>) => KubeObject[]): ObjectIdentity[] {
    return [...this.#watched.values()].flatMap(({ resource, informer }) =>
      read(informer).map((object) => ({ resource, object })),
    );
  }

  /** The kinds that are watched. */
  resources(): Resource<KubeObject>[] {
    return [...this.#watched.values()].map(({ resource }) => resource);
  }

  /** The namespaced ones among them. */
  namespacedResources(): Resource<KubeObject>[] {
    return this.resources().filter(({ namespaced }) => namespaced);
  }

  /** The kind under a group and kind name, or undefined when it is not served. */
  resourceOf(group: string, kind: string): Resource<KubeObject> | undefined {
    return [...this.#watched.values()]
      .map(({ resource }) => resource)
      .find((each) => each.group === group && each.kind === kind);
  }

  /** Follows all kinds until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const rediscover = () => {
      this.#discovering = this.#discovering
        .then(() => this.#discover(signal))
        .catch((error: unknown) => this.#warn(error));
    };
    this.#definitions.addHandler({
      onAdd: (_definition, { initial }) => (initial ? undefined : rediscover()),
      onUpdate: rediscover,
      onDelete: rediscover,
    });
    const definitions = this.#definitions.run(signal);
    await this.#definitions.synced(signal).catch(() => undefined);
    while (!signal.aborted && this.#watched.size === 0) {
      await this.#discover(signal).catch((error: unknown) => this.#warn(error));
      if (this.#watched.size === 0) await pause(this.#context, signal);
    }
    await Promise.all([...this.#watched.values()].map(({ informer }) => informer.synced(signal))).catch(
      () => undefined,
    );
    this.#ready.resolve();
    await definitions;
    await Promise.all(this.#running);
  }

  async #discover(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const found = new Map(
      (await this.#servedResources(signal)).map((each) => [`${each.group}/${each.resource}`, each]),
    );
    for (const [key, watched] of this.#watched) if (!found.has(key)) this.#forget(key, watched);
    for (const [key, resource] of found) if (!this.#watched.has(key)) this.#watch(key, resource, signal);
  }

  async #servedResources(signal: AbortSignal): Promise<Resource<KubeObject>[]> {
    const { client } = this.#context;
    const groups = await client.raw<{ groups?: GroupDiscovery[] }>({ method: "GET", path: "/apis" }, { signal });
    const roots = [
      { group: "", versions: ["v1"] },
      ...(groups.groups ?? []).map((each) => ({ group: each.name, versions: versionsOf(each) })),
    ];
    const found = new Map<string, Resource<KubeObject>>();
    for (const { group, versions } of roots) {
      for (const version of versions) {
        const path = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
        const list = await client.raw<{ resources?: DiscoveredResource[] }>({ method: "GET", path }, { signal });
        for (const { name, kind, namespaced } of (list.resources ?? []).filter(isCollectable)) {
          const key = `${group}/${name}`;
          if (!ignoredResources.has(key) && !found.has(key))
            found.set(key, { group, version, resource: name, kind, namespaced });
        }
      }
    }
    return [...found.values()];
  }

  #watch(key: string, resource: Resource<KubeObject>, signal: AbortSignal): void {
    const { client, clock } = this.#context;
    const informer = new Informer<KubeObject>({
      client,
      clock,
      resource,
      transform: metadataOnly,
      indexers: {
        [byOwner]: ({ metadata }) => (metadata.ownerReferences ?? []).map(({ uid }) => uid),
        [byNamespace]: ({ metadata }) => [metadata.namespace ?? ""],
      },
      onError: (error) => this.#warn(error),
    });
    const stop = new AbortController();
    this.#watched.set(key, { resource, informer, stop });
    informer.addHandler({
      onAdd: (object) => this.#tell({ resource, object }, false),
      onUpdate: (_old, object) => this.#tell({ resource, object }, false),
      onDelete: (object) => this.#tell({ resource, object }, true),
    });
    const running = informer.run(AbortSignal.any([signal, stop.signal])).finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  #forget(key: string, { resource, informer, stop }: Watched): void {
    stop.abort();
    this.#watched.delete(key);
    for (const object of informer.list()) this.#tell({ resource, object }, true);
  }

  #tell(identity: ObjectIdentity, deleted: boolean): void {
    const uid = identity.object.metadata.uid ?? "";
    if (!deleted) this.#byUid.set(uid, identity);
    // A namesake may already have taken the key; the uid decides.
    else this.#byUid.delete(uid);
    for (const handler of this.#handlers) handler(identity, deleted);
  }

  #warn(error: unknown): void {
    this.#context.logger.warn({ err: error }, "following every kind failed; trying again");
  }
}

interface GroupDiscovery {
  readonly name: string;
  readonly preferredVersion?: { readonly version: string };
  readonly versions?: readonly { readonly version: string }[];
}

function versionsOf({ preferredVersion, versions = [] }: GroupDiscovery): string[] {
  const preferred = preferredVersion === undefined ? [] : [preferredVersion.version];
  return [...new Set([...preferred, ...versions.map(({ version }) => version)])];
}

function isCollectable({ name, verbs }: DiscoveredResource): boolean {
  return !name.includes("/") && ["list", "watch", "delete"].every((verb) => verbs.includes(verb));
}

function metadataOnly({ apiVersion, kind, metadata }: KubeObject): KubeObject {
  const { name, namespace, uid, resourceVersion, ownerReferences, finalizers, deletionTimestamp } = metadata;
  return JSON.parse(
    JSON.stringify({
      apiVersion,
      kind,
      metadata: { name, namespace, uid, resourceVersion, ownerReferences, finalizers, deletionTimestamp },
    }),
  ) as KubeObject;
}

function definitionEssence(definition: CustomResourceDefinition): CustomResourceDefinition {
  const { name, uid, resourceVersion, generation } = definition.metadata;
  const metadata = {
    name,
    ...(uid === undefined ? {} : { uid }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
    ...(generation === undefined ? {} : { generation }),
  };
  return { ...definition, metadata, spec: { ...definition.spec, versions: [] } };
}

/** How long to wait before asking a server again that could not tell its kinds. */
const discoveryRetryMs = 1000;

function pause({ clock }: StandinContext, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const dispose = clock.setTimer(discoveryRetryMs, resolve);
    signal.addEventListener("abort", () => (dispose(), resolve()), { once: true });
  });
}
