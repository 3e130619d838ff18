import {
  archiveState,
  ignore,
  namespacedKey,
  type SandboxArchive,
  sandboxArchives,
  sandboxOf,
  wakePolicyOf,
} from "@agent-sandbox/api";
import { type Client, type Clock, Informer } from "@agent-sandbox/kube";

/** What the table is fed from. */
export interface ArchiveTableOptions {
  readonly client: Client;
  readonly clock: Clock;
  /** Absent: all namespaces. */
  readonly namespace?: string;
  readonly onError: (error: unknown) => void;
}

/** What a recall may take: ages, for an API that answers at all. */
const recallMsMax = 10_000;

/** Which sandboxes are in the archive, kept up to date by a watch. Nothing waits for its first list: a cluster may not serve the kind. */
export class ArchiveTable {
  readonly #client: Client;
  readonly #informer: Informer<SandboxArchive>;
  /** One recall under way per sandbox: later callers share it. */
  readonly #pending = new Map<string, Promise<void>>();

  constructor({ client, clock, namespace, onError }: ArchiveTableOptions) {
    this.#client = client;
    this.#informer = new Informer<SandboxArchive>({
      client,
      clock,
      resource: sandboxArchives,
      onError,
      ...(namespace !== undefined && { namespace }),
    });
  }

  /** Watches until the signal aborts. */
  run(signal: AbortSignal): Promise<void> {
    return this.#informer.run(signal);
  }

  /**
   * What traffic does to a sandbox without a route: nothing where it is not in the archive, or brings it back unless its owner does not want that.
   * One that is about to leave counts, because its own end may be seen before that of its archive.
   */
  find(namespace: string, name: string): "recallable" | "held" | undefined {
    const archive = this.#informer.get(namespacedKey(namespace, name));
    if (archive === undefined || archiveState(archive).step === "pending") return undefined;
    const sandbox = sandboxOf(archive);
    const isWanted = archive.spec.recall === true;
    return isWanted || (sandbox !== undefined && wakePolicyOf(sandbox) === "OnTraffic") ? "recallable" : "held";
  }

  /** Asks for a sandbox back; resolves when the API has heard it. */
  recall(namespace: string, name: string): Promise<void> {
    const key = namespacedKey(namespace, name);
    if (this.#informer.get(key)?.spec.recall === true) return Promise.resolve();
    const pending = this.#pending.get(key) ?? this.#write(namespace, name).finally(() => this.#pending.delete(key));
    this.#pending.set(key, pending);
    return pending;
  }

  async #write(namespace: string, name: string): Promise<void> {
    const patch = { type: "merge" as const, body: { spec: { recall: true } } };
    const signal = AbortSignal.timeout(recallMsMax);
    const options = { fieldManager: "agent-sandbox-router", signal };
    // Gone: it is back already, or deleted, and the table of sandboxes knows which.
    await this.#client.patch(sandboxArchives, { namespace, name }, patch, options).catch(ignore("NotFound"));
  }
}
