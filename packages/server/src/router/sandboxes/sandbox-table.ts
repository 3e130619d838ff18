import { namespacedKey, type Sandbox, sandboxes } from "@agent-sandbox/api";
import { type Client, type Clock, type Disposer, Informer } from "@agent-sandbox/kube";
import { routeOf, type SandboxRoute } from "./sandbox-route.ts";

/** What the table is fed from. */
export interface SandboxTableOptions {
  readonly client: Client;
  readonly clock: Clock;
  /** Absent: all namespaces. */
  readonly namespace?: string;
  readonly onError: (error: unknown) => void;
  /** Told of every address that nothing is sent to any more: its Pod is gone, or only not ready for now. */
  readonly onAddressLeft?: (address: string, isGone: boolean) => void;
  /** Told of every address behind which all containers have ended, also where they were started again since. */
  readonly onContainersEnded?: (address: string) => void;
  /** Told of every address whose sandbox's memory was saved: its end of each connection is closed when it wakes, and no packet says so until then. */
  readonly onMemorySaved?: (address: string) => void;
  /** Told of every sandbox whose processes have begun to stand still in memory: what is open to them gets no answer until they go on. */
  readonly onFrozen?: (route: SandboxRoute) => void;
}

/** Told of a new route, or of undefined when the sandbox is gone. */
export type RouteListener = (route: SandboxRoute | undefined) => void;

/** Name to route for every sandbox, kept up to date by a watch; looking one up never asks the API. */
export class SandboxTable {
  readonly #informer: Informer<Sandbox>;
  readonly #routes = new Map<string, SandboxRoute>();
  readonly #listeners = new Map<string, Set<RouteListener>>();
  readonly #clock: Clock;
  readonly #onAddressLeft: SandboxTableOptions["onAddressLeft"];
  readonly #onContainersEnded: SandboxTableOptions["onContainersEnded"];
  readonly #onMemorySaved: SandboxTableOptions["onMemorySaved"];
  readonly #onFrozen: SandboxTableOptions["onFrozen"];

  constructor({ client, clock, namespace, onError, ...listeners }: SandboxTableOptions) {
    this.#clock = clock;
    this.#onAddressLeft = listeners.onAddressLeft;
    this.#onContainersEnded = listeners.onContainersEnded;
    this.#onMemorySaved = listeners.onMemorySaved;
    this.#onFrozen = listeners.onFrozen;
    this.#informer = new Informer<Sandbox>({
      client,
      clock,
      resource: sandboxes,
      onError,
      transform: withoutPodTemplate,
      ...(namespace !== undefined && { namespace }),
    });
    this.#informer.addHandler({
      onAdd: (sandbox) => this.#put(sandbox),
      onUpdate: (_old, sandbox) => this.#put(sandbox),
      onDelete: (sandbox) =>
        this.#set(namespacedKey(sandbox.metadata.namespace ?? "", sandbox.metadata.name ?? ""), undefined),
    });
  }

  /** Watches until the signal aborts. */
  run(signal: AbortSignal): Promise<void> {
    return this.#informer.run(signal);
  }

  /** Resolves when every sandbox is known. */
  synced(signal: AbortSignal): Promise<void> {
    return this.#informer.synced(signal);
  }

  /** Whether every sandbox is known. */
  get hasSynced(): boolean {
    return this.#informer.hasSynced;
  }

  /** The route of a sandbox, or undefined for one that cannot be reached under this name. */
  get(namespace: string, name: string): SandboxRoute | undefined {
    return this.#routes.get(namespacedKey(namespace, name));
  }

  /** As `get`, but waits a while for one that is not known yet. */
  seen(namespace: string, name: string, limitMs: number): Promise<SandboxRoute | undefined> {
    const known = this.get(namespace, name);
    if (known !== undefined) return Promise.resolve(known);
    return new Promise((resolve) => {
      const settle = (route?: SandboxRoute): void => {
        stopListening();
        stopTimer();
        resolve(route);
      };
      const stopListening = this.listen(namespace, name, settle);
      const stopTimer = this.#clock.setTimer(limitMs, settle);
    });
  }

  /** Takes a state that a write of ours returned, so that no request is routed by an older one. */
  observe(sandbox: Sandbox): SandboxRoute | undefined {
    this.#put(sandbox);
    return this.get(sandbox.metadata.namespace ?? "", sandbox.metadata.name ?? "");
  }

  /** Calls back on every change of one sandbox. */
  listen(namespace: string, name: string, listener: RouteListener): Disposer {
    const key = namespacedKey(namespace, name);
    const listeners = this.#listeners.get(key) ?? new Set();
    this.#listeners.set(key, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(key) === listeners) this.#listeners.delete(key);
    };
  }

  #put(sandbox: Sandbox): void {
    const key = namespacedKey(sandbox.metadata.namespace ?? "", sandbox.metadata.name ?? "");
    const known = this.#routes.get(key);
    // What a write of ours returned is ahead of the watch, whose older events are still on their way.
    const isOlder =
      known !== undefined &&
      known.uid === sandbox.metadata.uid &&
      Number(sandbox.metadata.resourceVersion) < known.version;
    if (isOlder) return;
    const route = routeOf(sandbox);
    const isFollower = route !== undefined && known !== undefined;
    this.#set(key, isFollower ? withServedFrom(route, known, this.#clock.nowMs()) : route);
  }

  #set(key: string, route: SandboxRoute | undefined): void {
    const before = this.#routes.get(key);
    if (before?.state.kind === "ready") {
      const now: readonly string[] =
        route?.state.kind === "ready" && route.uid === before.uid ? route.state.addresses : [];
      // A Pod that fails a probe, or stands still, is the same Pod still, with whatever is open to it.
      const isSame = route?.uid === before.uid && (route.state.kind === "starting" || route.keepsPod);
      const kept = isSame ? route.podAddresses : [];
      for (const address of before.state.addresses)
        if (!now.includes(address)) this.#onAddressLeft?.(address, !kept.includes(address));
    }
    // An address that it has lost may be another sandbox's by now.
    if (before !== undefined && route !== undefined && hasEnded(before, route))
      for (const address of before.podAddresses)
        if (route.podAddresses.includes(address)) this.#onContainersEnded?.(address);
    // One whose memory is saved has its address for as long as it is there.
    if (before !== undefined && route !== undefined && wasSaved(before, route))
      for (const address of before.podAddresses) this.#onMemorySaved?.(address);
    if (route === undefined) this.#routes.delete(key);
    else this.#routes.set(key, route);
    if (before !== undefined && route !== undefined && hasFrozen(before, route)) this.#onFrozen?.(route);
    // A set tolerates that listeners leave while it is walked; one that joins is called as well, with the same state.
    for (const listener of this.#listeners.get(key) ?? []) listener(route);
  }
}

/** Remembers where a sandbox served from while its Pod stands still: on its way back it serves from there again, before its status says so. */
function withServedFrom(route: SandboxRoute, before: SandboxRoute, nowMs: number): SandboxRoute {
  const servedFrom = before.state.kind === "ready" ? before.state.addresses : before.servedFrom;
  // Its controller has withdrawn the wish.
  const isReturning = before.thawingSinceMs !== undefined && !route.keepsPod;
  // A user's suspension is seen before the wish that follows from it.
  const isAway = route.state.kind === "asleep" || (isReturning && route.state.kind === "starting");
  const isSame = route.uid === before.uid && route.containerEnd === before.containerEnd;
  const isKept = isAway && isSame && route.savedSleep === undefined;
  if (!isKept || servedFrom?.every((each) => route.podAddresses.includes(each)) !== true) return route;
  const isThawing = route.isCalledOff || isReturning;
  return { ...route, servedFrom, ...(isThawing && { thawingSinceMs: before.thawingSinceMs ?? nowMs }) };
}

/** Whether a route says for the first time that the containers of the sandbox before it have ended. */
function hasEnded(before: SandboxRoute, route: SandboxRoute): boolean {
  return route.uid === before.uid && route.containerEnd !== undefined && route.containerEnd !== before.containerEnd;
}

/** Whether a route says for the first time that the memory of the sandbox before it was saved. */
function wasSaved(before: SandboxRoute, route: SandboxRoute): boolean {
  return route.uid === before.uid && route.savedSleep !== undefined && route.savedSleep !== before.savedSleep;
}

/** Whether a route says for the first time that the processes of the sandbox before it stand still. */
function hasFrozen(before: SandboxRoute, route: SandboxRoute): boolean {
  return route.uid === before.uid && route.frozenSleep !== undefined && route.frozenSleep !== before.frozenSleep;
}

/** Pod templates are most of a Sandbox's size, and routing reads none of it. */
function withoutPodTemplate(sandbox: Sandbox): Sandbox {
  const { podTemplate: _podTemplate, volumeClaimTemplates: _templates, ...spec } = sandbox.spec;
  const { managedFields: _managedFields, ...metadata } = sandbox.metadata;
  return { ...sandbox, metadata, spec: { ...spec, podTemplate: { spec: { containers: [] } } } };
}
