import { keyOf, type Pod, type Sandbox } from "@agent-sandbox/api";

/**
 * Pods that this process made or adopted and whose Sandboxes do not name them yet, so that a status write that failed costs no second Pod. Forgetting
 * one is harmless: an unnamed Pod is replaced. At most one per Sandbox, gone with it.
 */
export class MadePods {
  readonly #byKey = new Map<string, { readonly sandboxUid: string | undefined; readonly podUid: string }>();

  /** Remembers the API server's answer to a create or an adoption. */
  note(sandbox: Sandbox, { metadata }: Pod): void {
    if (metadata.uid !== undefined) {
      this.#byKey.set(keyOf(sandbox), { sandboxUid: sandbox.metadata.uid, podUid: metadata.uid });
    }
  }

  /** Uid of the Pod that was made for this very Sandbox and that its status does not name yet. */
  of(sandbox: Sandbox): string | undefined {
    const key = keyOf(sandbox);
    const made = this.#byKey.get(key);
    if (made === undefined) return undefined;
    if (made.sandboxUid === sandbox.metadata.uid && made.podUid !== sandbox.status?.podUID) return made.podUid;
    this.#byKey.delete(key);
    return undefined;
  }

  /** The Sandbox is gone. */
  clear(key: string): void {
    this.#byKey.delete(key);
  }
}
