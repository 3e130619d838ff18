import { type Sandbox, sandboxes } from "@agent-sandbox/api";
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

  constructor({ client, clock, namespace, onError, onAddressLeft }: SandboxTableOptions) {
    this.#clock = clock;
    this.#onAddressLeft = onAddressLeft;
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
        this.#set(routeKey(sandbox.metadata.namespace ?? "", sandbox.metadata.name ?? ""), undefined),
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
    return this.#routes.get(routeKey(namespace, name));
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
    const key = routeKey(namespace, name);
    const listeners = this.#listeners.get(key) ?? new Set();
    this.#listeners.set(key, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(key) === listeners) this.#listeners.delete(key);
    };
  }

  #put(sandbox: Sandbox): void {
    const key = routeKey(sandbox.metadata.namespace ?? "", sandbox.metadata.name ?? "");
    const known = this.#routes.get(key);
    // What a write of ours returned is ahead of the watch, whose older events are still on their way.
    const isOlder =
      known !== undefined &&
      known.uid === sandbox.metadata.uid &&
      Number(sandbox.metadata.resourceVersion) < known.version;
    if (!isOlder) this.#set(key, routeOf(sandbox));
  }

  #set(key: string, route: SandboxRoute | undefined): void {
    const before = this.#routes.get(key);
    if (before?.state.kind === "ready") {
      const now: readonly string[] =
        route?.state.kind === "ready" && route.uid === before.uid ? route.state.addresses : [];
      // A Pod that fails a probe is the same Pod still, with whatever is open to it.
      const isGone = route?.uid !== before.uid || route.state.kind !== "starting";
      for (const address of before.state.addresses) if (!now.includes(address)) this.#onAddressLeft?.(address, isGone);
    }
    if (route === undefined) this.#routes.delete(key);
    else this.#routes.set(key, route);
    // A set tolerates that listeners leave while it is walked; one that joins is called as well, with the same state.
    for (const listener of this.#listeners.get(key) ?? []) listener(route);
  }
}

/** Pod templates are most of a Sandbox's size, and routing reads none of it. */
function withoutPodTemplate(sandbox: Sandbox): Sandbox {
  const { podTemplate: _podTemplate, volumeClaimTemplates: _templates, ...spec } = sandbox.spec;
  const { managedFields: _managedFields, ...metadata } = sandbox.metadata;
  return { ...sandbox, metadata, spec: { ...spec, podTemplate: { spec: { containers: [] } } } };
}

function routeKey(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}
