import type { ArchiveStore, StoredContent } from "../node/archive/archive-store.ts";
import type { RoleUser } from "./role-user.ts";

/**
 * A directory's archive, used by root with the rights of the user whose it is: what is written belongs to that user, and nothing that the user put in the way leads root elsewhere.
 * Preconditions: the process does nothing else while a call runs.
 */
export class OwnedStore implements ArchiveStore {
  readonly #store: ArchiveStore;
  readonly #owner: RoleUser;

  constructor(store: ArchiveStore, owner: RoleUser) {
    this.#store = store;
    this.#owner = owner;
  }

  has = (name: string, content: StoredContent, signal: AbortSignal): Promise<boolean> =>
    this.#asOwner(() => this.#store.has(name, content, signal));
  putFile = (name: string, file: StoredContent & { readonly path: string }, signal: AbortSignal): Promise<void> =>
    this.#asOwner(() => this.#store.putFile(name, file, signal));
  getFile = (name: string, file: StoredContent & { readonly path: string }, signal: AbortSignal): Promise<void> =>
    this.#asOwner(() => this.#store.getFile(name, file, signal));
  putText = (name: string, text: string, signal: AbortSignal): Promise<void> =>
    this.#asOwner(() => this.#store.putText(name, text, signal));
  getText = (name: string, signal: AbortSignal): Promise<string | undefined> =>
    this.#asOwner(() => this.#store.getText(name, signal));
  list = (prefix: string, signal: AbortSignal): Promise<readonly string[]> =>
    this.#asOwner(() => this.#store.list(prefix, signal));
  remove = (name: string, signal: AbortSignal): Promise<void> => this.#asOwner(() => this.#store.remove(name, signal));

  async #asOwner<T>(act: () => Promise<T>): Promise<T> {
    const { uid, gid } = this.#owner;
    process.setegid?.(gid);
    process.seteuid?.(uid);
    try {
      return await act();
    } finally {
      process.seteuid?.(0);
      process.setegid?.(0);
    }
  }
}
