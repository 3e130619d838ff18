import { ignore, isReasonOf } from "@agent-sandbox/api/api-error";
import type { Sandbox as SandboxObject } from "@agent-sandbox/api/kinds.gen";
import { annotations } from "@agent-sandbox/api/labels";
import { controllerOf, refersTo } from "@agent-sandbox/api/ownership";
import { sandboxClaims, sandboxes } from "@agent-sandbox/api/resource";
import type { AwaitReadyOptions } from "./control/await-ready.ts";
import type { ClaimReference } from "./control/claim-sandbox.ts";
import type {
  CallTarget,
  ClaimOptions,
  CreateOptions,
  StateWaitOptions,
  WaitOptions,
} from "./control/create-options.ts";
import { type SandboxInfo, type SandboxState, sandboxInfo } from "./control/sandbox-info.ts";
import { planeTarget } from "./control/sandbox-locator.ts";
import type { LogOptions } from "./control/sandbox-logs.ts";
import { findEngine } from "./engine/default-engine.ts";
import type { Engine } from "./engine/engine.ts";
import { apiCall } from "./errors/api-failure.ts";
import { replaced } from "./errors/replaced.ts";
import { isSandboxError, SandboxError } from "./errors/sandbox-error.ts";
import { SandboxConnection } from "./sandbox-connection.ts";

/** What a handle is made of. */
interface SandboxParts {
  readonly engine: Engine;
  readonly object: SandboxObject;
  /** The claim that holds it. */
  readonly claim?: ClaimReference | undefined;
  /** Deleted when the handle is disposed of. */
  readonly isOwned: boolean;
}

/** A handle as plain JSON, for `Sandbox.from`. */
export interface SandboxJson {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly claim?: string;
}

/** Options of `Sandbox.list`. */
export interface ListOptions extends CallTarget {
  /** A Kubernetes label selector: `team=a,tier!=prod`. */
  readonly labelSelector?: string;
  readonly allNamespaces?: boolean;
}

/** Options of `suspend`; the default of `waitTimeoutMs` is 120,000. */
export interface SuspendOptions extends StateWaitOptions {
  /** Traffic does not wake it; only `resume` does. Default false. */
  readonly hold?: boolean;
}

/** Options of `delete`. */
export interface DeleteOptions {
  /** Resolves once the sandbox is gone, after 120,000 ms at most, instead of when it is being deleted. Default false. */
  readonly wait?: boolean;
  readonly signal?: AbortSignal;
}

const fieldManager = "agent-sandbox-sdk";
const writeOptions = { fieldManager, fieldValidation: "Strict" } as const;

/** An isolated Linux environment: run commands, move files, reach ports; put it to sleep and wake it again. */
export class Sandbox extends SandboxConnection {
  readonly uid: string;
  readonly #parts: SandboxParts;

  private constructor(parts: SandboxParts) {
    const { namespace = "", name } = parts.object.metadata;
    const { engine, object } = parts;
    const uid = object.metadata.uid ?? "";
    super({
      namespace,
      name,
      plane: engine.openPlane(planeTarget(engine, object)),
      limitReached: async (sinceMs) => {
        const { limitReached } = await import("./control/limit-reached.ts");
        return limitReached(engine, { namespace, name, uid, sinceMs });
      },
    });
    this.uid = uid;
    this.#parts = parts;
  }

  /** Makes a sandbox and waits until it is ready. With `await using` it is deleted at the end of the block. */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    const engine = await findEngine(options.engine);
    const { createSandbox } = await import("./control/create-sandbox.ts");
    return new Sandbox({ engine, object: await createSandbox(engine, options), isOwned: true });
  }

  /** Takes a sandbox from a warm pool. With `await using` it is given back, that is deleted, at the end of the block. */
  static async claim(pool: string, options: ClaimOptions = {}): Promise<Sandbox> {
    const engine = await findEngine(options.engine);
    const { claimSandbox } = await import("./control/claim-sandbox.ts");
    return new Sandbox({ engine, ...(await claimSandbox(engine, pool, options)), isOwned: true });
  }

  /** The sandbox of that name: made where there is none, woken where it sleeps. Calling it twice gives the same sandbox. */
  static async open(name: string, options: Omit<CreateOptions, "name"> = {}): Promise<Sandbox> {
    const engine = await findEngine(options.engine);
    const { openSandbox } = await import("./control/create-sandbox.ts");
    return new Sandbox({ engine, object: await openSandbox(engine, name, options), isOwned: false });
  }

  /** The sandbox of that name as it is; `not-found` where there is none. */
  static async get(name: string, options: CallTarget = {}): Promise<Sandbox> {
    const engine = await findEngine(options.engine);
    const { signal, namespace = engine.namespace } = options;
    const call = (): Promise<SandboxObject> =>
      engine.client.get(sandboxes, { namespace, name }, signal === undefined ? {} : { signal });
    const object = await apiCall(`get sandbox ${namespace}/${name}`, call);
    return new Sandbox({ engine, object, claim: claimOf(object), isOwned: false });
  }

  /** All sandboxes of a namespace, in pages, as handles. Unclaimed members of pools are among them. */
  static async *list(options: ListOptions = {}): AsyncGenerator<Sandbox> {
    const engine = await findEngine(options.engine);
    const { labelSelector, allNamespaces = false, namespace = engine.namespace, signal } = options;
    let next: string | undefined;
    do {
      const page = await apiCall("list sandboxes", () =>
        engine.client.list(sandboxes, {
          limit: 500,
          ...(!allNamespaces && { namespace }),
          ...(labelSelector !== undefined && { labelSelector }),
          ...(next !== undefined && { continue: next }),
          ...(signal !== undefined && { signal }),
        }),
      );
      for (const object of page.items) yield new Sandbox({ engine, object, claim: claimOf(object), isOwned: false });
      next = page.metadata.continue;
    } while (next !== undefined && next !== "");
  }

  /** The handle that `toJSON` was called on, perhaps in another process; `not-found` where that very sandbox is gone. */
  static async from(json: SandboxJson, options: Omit<CallTarget, "namespace"> = {}): Promise<Sandbox> {
    const sandbox = await Sandbox.get(json.name, { ...options, namespace: json.namespace });
    if (sandbox.uid === json.uid) return sandbox;
    await sandbox.close();
    throw replaced(json.namespace, json.name);
  }

  /** The claim that holds it; undefined where there is none. */
  get claimName(): string | undefined {
    return this.#parts.claim?.name;
  }

  /** Name, namespace and uid: enough to find it again. */
  toJSON(): SandboxJson {
    const { claim } = this.#parts;
    return {
      namespace: this.namespace,
      name: this.name,
      uid: this.uid,
      ...(claim !== undefined && { claim: claim.name }),
    };
  }

  /** The Sandbox object as it is now; `not-found` also where another one has its name. */
  async object(options: { readonly signal?: AbortSignal } = {}): Promise<SandboxObject> {
    const { namespace, name } = this;
    const found = await apiCall(`get sandbox ${namespace}/${name}`, () =>
      this.#parts.engine.client.get(sandboxes, { namespace, name }, options),
    );
    if (found.metadata.uid !== this.uid) throw replaced(namespace, name);
    return found;
  }

  /** What it is and how it is doing. Asking does not keep it awake. */
  async info(options: { readonly signal?: AbortSignal } = {}): Promise<SandboxInfo> {
    return sandboxInfo(await this.object(options));
  }

  /** What the handle knew when it was made; costs nothing. */
  get lastSeen(): SandboxInfo {
    return sandboxInfo(this.#parts.object);
  }

  /** Waits until it is ready. */
  async ready(options: WaitOptions & { readonly signal?: AbortSignal } = {}): Promise<void> {
    await this.#awaitReady(options);
  }

  /**
   * Waits until it is in a state, 180,000 ms unless `waitTimeoutMs` says otherwise, and returns what it is then; `not-found`
   * where it was deleted or replaced meanwhile.
   */
  async waitFor(state: SandboxState, options: StateWaitOptions = {}): Promise<SandboxInfo> {
    const { awaitState } = await import("./control/await-state.ts");
    const { namespace, name, uid } = this;
    return awaitState(this.#parts.engine, state, { namespace, name, uid, ...options });
  }

  /** Puts it to sleep: what it wrote stays. Resolves when it sleeps. Traffic wakes it, unless `hold`. */
  async suspend({ hold = false, ...options }: SuspendOptions = {}): Promise<void> {
    const spec = { operatingMode: "Suspended", wakePolicy: hold ? "Never" : "OnTraffic" } as const;
    // A sandbox that traffic has woken is still suspended by its spec: the suspension has to count from now.
    const object = await this.#patch(spec, options.signal, { annotations: { [annotations.suspendedAt]: null } });
    const { awaitSuspended } = await import("./control/await-suspended.ts");
    await awaitSuspended(this.#parts.engine, object, options);
  }

  /** Wakes it and resolves when it is ready. */
  async resume(options: WaitOptions & { readonly signal?: AbortSignal } = {}): Promise<void> {
    const known = await this.#patch({ operatingMode: "Running" }, options.signal);
    await this.#awaitReady({ ...options, known });
  }

  /** It is deleted this long from now, whatever was set before; `undefined`: never. */
  async setTimeout(ttlMs: number | undefined, options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    const { shutdownTime } = await import("./control/sandbox-object.ts");
    await this.#setShutdown(ttlMs === undefined ? null : shutdownTime(Date.now(), ttlMs), options.signal);
  }

  /** It lives this much longer than was set; resolves with its end then. `conflict` where no end is set. */
  async extend(byMs: number, options: { readonly signal?: AbortSignal } = {}): Promise<Date> {
    const { shutdownAt } = await this.info(options);
    if (shutdownAt === undefined)
      throw new SandboxError("conflict", `sandbox ${this.namespace}/${this.name} has no end to extend`);
    const { shutdownTime } = await import("./control/sandbox-object.ts");
    const end = shutdownTime(shutdownAt.getTime(), byMs);
    await this.#setShutdown(end, options.signal);
    return new Date(end);
  }

  /** What its own long-running process printed, in pieces as they come. */
  async *logs(options: LogOptions = {}): AsyncGenerator<Uint8Array> {
    const { readLogs } = await import("./control/sandbox-logs.ts");
    const { engine, object } = this.#parts;
    const name = object.metadata.annotations?.[annotations.podName] ?? this.name;
    yield* readLogs(engine, { namespace: this.namespace, name }, options);
  }

  /** A link to a port that a browser can open without credentials, until it expires. Default life: one hour. */
  async url(port: number, options: { readonly ttlMs?: number; readonly signal?: AbortSignal } = {}): Promise<URL> {
    const { createLink } = await import("./control/create-link.ts");
    const { namespace, name } = this;
    return createLink(this.#parts.engine, { namespace, name, port, ...options });
  }

  /** Deletes it, or the claim that holds it. One that is gone already, or was replaced by another of its name, is fine. */
  async delete({ wait = false, ...options }: DeleteOptions = {}): Promise<void> {
    const { engine, claim } = this.#parts;
    const { namespace, name, uid } = this;
    const known = wait ? await this.object(options).catch(unlessGone) : undefined;
    const deletion =
      claim === undefined
        ? engine.client.delete(sandboxes, { namespace, name }, { uid, ...options })
        : engine.client.delete(sandboxClaims, { namespace, name: claim.name }, { uid: claim.uid, ...options });
    // Another one of the same name is not ours to delete.
    const isOther = (error: unknown): undefined => {
      if (isReasonOf(error, "Conflict")) return undefined;
      return ignore("NotFound")(error);
    };
    await apiCall(`delete sandbox ${namespace}/${name}`, () => deletion.catch(isOther));
    await this.close();
    if (known === undefined) return;
    const { awaitGone } = await import("./control/await-gone.ts");
    await awaitGone(engine, known, options);
  }

  /** Deletes what `create` or `claim` made; of others it only ends the connections. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#parts.isOwned) await this.delete();
    else await this.close();
  }

  async #awaitReady(
    options: Pick<AwaitReadyOptions, "known" | "readyTimeoutMs" | "onProgress" | "signal">,
  ): Promise<void> {
    const { awaitReady } = await import("./control/await-ready.ts");
    await awaitReady({ engine: this.#parts.engine, namespace: this.namespace, name: this.name, ...options });
  }

  /** Changes this very sandbox: the uid keeps another one of its name from being changed instead. */
  async #patch(spec: object, signal: AbortSignal | undefined, metadata?: object): Promise<SandboxObject> {
    const { namespace, name, uid } = this;
    const options = { ...writeOptions, ...(signal !== undefined && { signal }) };
    const patch = { type: "merge", body: { spec, metadata: { uid, ...metadata } } } as const;
    const change = (): Promise<SandboxObject> =>
      this.#parts.engine.client.patch(sandboxes, { namespace, name }, patch, options).catch((error: unknown) => {
        throw isOtherUid(error) ? replaced(namespace, name) : error;
      });
    return apiCall(`change sandbox ${namespace}/${name}`, change);
  }

  async #setShutdown(time: string | null, signal: AbortSignal | undefined): Promise<void> {
    const { engine, claim } = this.#parts;
    const { namespace, name } = this;
    const end = { shutdownTime: time, shutdownPolicy: time === null ? null : "Delete" };
    if (claim === undefined) return void (await this.#patch(end, signal));
    const options = { ...writeOptions, ...(signal !== undefined && { signal }) };
    const patch = { type: "merge", body: { spec: { lifecycle: end }, metadata: { uid: claim.uid } } } as const;
    await apiCall(`change the end of sandbox ${namespace}/${name}`, () =>
      engine.client.patch(sandboxClaims, { namespace, name: claim.name }, patch, options).catch((error: unknown) => {
        throw isOtherUid(error) ? replaced(namespace, name) : error;
      }),
    );
  }
}

/** Whether a change was refused because its uid is not that of the object: as a conflict or as an immutable field. */
function isOtherUid(error: unknown): boolean {
  return isReasonOf(error, "Conflict") || (isReasonOf(error, "Invalid") && error.message.includes("metadata.uid"));
}

/** Undefined for the error of a sandbox that is gone, or has been replaced. */
function unlessGone(error: unknown): undefined {
  if (!isSandboxError(error, "not-found")) throw error;
}

/** The claim that owns a Sandbox. */
function claimOf({ metadata }: SandboxObject): ClaimReference | undefined {
  const owner = controllerOf({ metadata });
  return owner !== undefined && refersTo(owner, sandboxClaims) ? { name: owner.name, uid: owner.uid } : undefined;
}
