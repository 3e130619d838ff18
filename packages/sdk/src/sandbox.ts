import { ignore, isReasonOf } from "@agent-sandbox/api/api-error";
import type { Sandbox as SandboxObject } from "@agent-sandbox/api/kinds.gen";
import { annotationKeys } from "@agent-sandbox/api/labels";
import { controllerOf, refersTo } from "@agent-sandbox/api/ownership";
import { sandboxClaims, sandboxes } from "@agent-sandbox/api/resource";
import { savedMemoryOf } from "@agent-sandbox/api/sleep-answer";
import type { AwaitReadyOptions } from "./control/await-ready.ts";
import type { ServicesTarget } from "./control/change-services.ts";
import type { ClaimReference } from "./control/claim-sandbox.ts";
import {
  type CallTarget,
  type ClaimOptions,
  type CreateOptions,
  type ForkOptions,
  type SnapshotOptions,
  type StateWaitOptions,
  type WaitOptions,
} from "./control/create-options.ts";
import { claimOptionNames, createOptionNames, forkOptionNames, snapshotOptionNames } from "./control/option-names.ts";
import { type SandboxInfo, type SandboxState, sandboxInfo } from "./control/sandbox-info.ts";
import { planeTarget } from "./control/sandbox-locator.ts";
import type { LogOptions } from "./control/sandbox-logs.ts";
import type { SnapshotInfo } from "./control/snapshot-info.ts";
import { findEngine } from "./engine/default-engine.ts";
import type { Engine } from "./engine/engine.ts";
import { apiCall } from "./errors/api-failure.ts";
import { assertKnownOptions } from "./errors/known-options.ts";
import { replaced } from "./errors/replaced.ts";
import { isSandboxError, SandboxError } from "./errors/sandbox-error.ts";
import type { DataPlane } from "./plane/data-plane.ts";
import type { Processes } from "./process/processes.ts";
import type { Command, SpawnOptions } from "./process/run-options.ts";
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

/** Options of `resume`. */
export interface ResumeOptions extends WaitOptions {
  /** Memory that was saved is given up: it starts from its files alone. Default false. */
  readonly cold?: boolean;
  readonly signal?: AbortSignal;
}

/** Options of `suspend`; the default of `waitTimeoutMs` is 120,000. */
export interface SuspendOptions extends StateWaitOptions {
  /** Traffic does not wake it; only `resume` does. Default false. */
  readonly hold?: boolean;
}

/** Options of `startService`. */
export type ServiceOptions = Pick<SpawnOptions, "env" | "cwd" | "user" | "requestTimeoutMs" | "signal">;

/** Options of `delete`. */
export interface DeleteOptions {
  /** Resolves once the sandbox is gone, after 120,000 ms at most, instead of when it is being deleted. Default false. */
  readonly wait?: boolean;
  readonly signal?: AbortSignal;
}

/** For the end of a service that could not be written down: the caller waits for its own error, and a sandbox that has gone answers nothing. */
const endServiceLimitMs = 5_000;

const fieldManager = "agent-sandbox-sdk";
const writeOptions = { fieldManager, fieldValidation: "Strict" } as const;

/** An isolated Linux environment: run commands, move files, reach ports; put it to sleep and wake it again. */
export class Sandbox extends SandboxConnection {
  readonly uid: string;
  readonly #parts: SandboxParts;
  readonly #plane: DataPlane;

  private constructor(parts: SandboxParts) {
    const { namespace = "", name } = parts.object.metadata;
    const { engine, object } = parts;
    const uid = object.metadata.uid ?? "";
    const plane = engine.openPlane(planeTarget(engine, object));
    super({
      namespace,
      name,
      plane,
      findEnd: async (question) => {
        const { findContainerEnd } = await import("./control/find-container-end.ts");
        return findContainerEnd(engine, { namespace, name, uid, ...question });
      },
    });
    this.uid = uid;
    this.#parts = parts;
    this.#plane = plane;
  }

  /** Makes a sandbox and waits until it is ready. With `await using` it is deleted at the end of the block. */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    assertKnownOptions("create", options, createOptionNames);
    const engine = await findEngine(options.engine);
    const { createSandbox } = await import("./control/create-sandbox.ts");
    return new Sandbox({ engine, object: await createSandbox(engine, options), isOwned: true });
  }

  /** Takes a sandbox from a warm pool. With `await using` it is given back, that is deleted, at the end of the block. */
  static async claim(pool: string, options: ClaimOptions = {}): Promise<Sandbox> {
    assertKnownOptions("claim", options, claimOptionNames);
    const engine = await findEngine(options.engine);
    const { claimSandbox } = await import("./control/claim-sandbox.ts");
    return new Sandbox({ engine, ...(await claimSandbox(engine, pool, options)), isOwned: true });
  }

  /** The sandbox of that name: made where there is none, woken where it sleeps. Calling it twice gives the same sandbox. */
  static async open(name: string, options: Omit<CreateOptions, "name"> = {}): Promise<Sandbox> {
    assertKnownOptions("open", options, createOptionNames);
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

  /** All snapshots of a namespace. */
  static async listSnapshots(options: CallTarget = {}): Promise<SnapshotInfo[]> {
    const { listSnapshots } = await import("./control/take-snapshot.ts");
    return listSnapshots(await findEngine(options.engine), options);
  }

  /** Deletes the snapshot of that name; one that is not there is fine. Sandboxes that were started from it are not touched. */
  static async deleteSnapshot(name: string, options: CallTarget = {}): Promise<void> {
    const { deleteSnapshot } = await import("./control/take-snapshot.ts");
    return deleteSnapshot(await findEngine(options.engine), name, options);
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
    const object = await this.#patch(spec, options.signal, { annotations: { [annotationKeys.suspendedAt]: null } });
    const { awaitSuspended } = await import("./control/await-suspended.ts");
    await awaitSuspended(this.#parts.engine, object, options);
  }

  /** Wakes it and resolves when it is ready; `cold` where memory that was saved cannot be used. */
  async resume({ cold = false, ...options }: ResumeOptions = {}): Promise<void> {
    const { signal } = options;
    const saved = cold ? savedMemoryOf(await this.object(signalOf(options))) : undefined;
    const given = saved === undefined ? undefined : { annotations: { [annotationKeys.coldStart]: saved } };
    const known = await this.#patch({ operatingMode: "Running" }, signal, given);
    await this.#awaitReady({ ...options, known });
  }

  /**
   * Saves its files and, unless `memory` is false, its processes under a name; resolves when all of it is on disk. It goes on afterwards as it was, awake or
   * asleep. `Sandbox.create` with `fromSnapshot` starts from it.
   */
  async snapshot(options: SnapshotOptions = {}): Promise<SnapshotInfo> {
    assertKnownOptions("snapshot", options, snapshotOptionNames);
    const [{ takeSnapshot }, { snapshotInfo }] = await Promise.all([
      import("./control/take-snapshot.ts"),
      import("./control/snapshot-info.ts"),
    ]);
    const { namespace, name, uid } = this;
    return snapshotInfo(await takeSnapshot(this.#parts.engine, { namespace, name, uid }, options));
  }

  /**
   * Makes copies of it as it is now, each with its own name and address, by one snapshot whatever their number. Resolves when all have started or failed:
   * the results are in order, each a sandbox or the error of that one. It goes on as it was. What is secret in its memory is in theirs too.
   */
  async fork(count = 1, options: ForkOptions = {}): Promise<(Sandbox | SandboxError)[]> {
    assertKnownOptions("fork", options, forkOptionNames);
    const { forkSandbox } = await import("./control/fork-sandbox.ts");
    const { engine } = this.#parts;
    const results = await forkSandbox(engine, await this.object(signalOf(options)), count, options);
    return results.map((result) =>
      isSandboxError(result) ? result : new Sandbox({ engine, object: result, isOwned: true }),
    );
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

  /** What its own long-running process and those started with `log` printed, in pieces as they come. */
  async *logs(options: LogOptions = {}): AsyncGenerator<Uint8Array> {
    const { readLogs } = await import("./control/sandbox-logs.ts");
    const { engine, object } = this.#parts;
    const name = object.metadata.annotations?.[annotationKeys.podName] ?? this.name;
    yield* readLogs(engine, { namespace: this.namespace, name }, options);
  }

  /**
   * Keeps a program running under a name: it is started again whenever it ends, and after a sleep. What ran under the name before is replaced; what it
   * prints is in `logs`.
   */
  async startService(service: string, command: Command, options: ServiceOptions = {}): Promise<void> {
    const { assertServiceName, declareService } = await import("./control/change-services.ts");
    assertServiceName(service);
    const processes = await this.#supervised();
    await processes.startService(service, command, options);
    const { env, cwd, user, signal } = options;
    const argv = typeof command === "string" ? ["/bin/sh", "-c", command] : [...command];
    const declared = {
      name: service,
      command: argv,
      ...(env !== undefined && { env }),
      ...(cwd !== undefined && { cwd }),
      ...(user !== undefined && { user }),
    };
    await declareService(this.#parts.engine, this.#servicesTarget(signal), declared).catch(async (error: unknown) => {
      // What cannot be written down would be gone after a sleep: the caller is not left with half of it.
      const limit = { signal: AbortSignal.timeout(endServiceLimitMs) };
      await processes.endService(service, limit).catch(() => undefined);
      throw error;
    });
  }

  /** Ends a service for good. One that is not there is fine; a sleeping sandbox is woken. */
  async removeService(service: string, options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    const { withdrawService } = await import("./control/change-services.ts");
    await withdrawService(this.#parts.engine, this.#servicesTarget(options.signal), service);
    await (await this.#supervised()).endService(service, options);
  }

  async #supervised(): Promise<Processes> {
    const [{ Processes }, { ConnectClient }] = await Promise.all([
      import("./process/processes.ts"),
      import("./plane/connect-client.ts"),
    ]);
    return new Processes(new ConnectClient(this.#plane));
  }

  #servicesTarget(signal: AbortSignal | undefined): ServicesTarget {
    const { namespace, name, uid } = this;
    return { namespace, name, uid, signal };
  }

  /** A link to a port that anything can open without credentials, until it expires. Default life: one hour. */
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

function signalOf({ signal }: { readonly signal?: AbortSignal }): { readonly signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
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
