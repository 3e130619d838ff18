import type { Duplex } from "node:stream";
import type { Target } from "../addressing/target.ts";

/** A revoked right works this much longer on a connection that is in use; the reviewer's own memory comes on top. */
const rememberMs = 1_000;

/** What the API server last allowed on one connection; its rights are for whole sandboxes, whatever the port. */
class ConnectionMemory {
  #authorization = "";
  #namespace = "";
  #name = "";
  #untilMs = 0;

  /** Whether the same credential was let through to the same sandbox a moment ago. */
  allows(authorization: string, { namespace, name }: Target, nowMs: number): boolean {
    return (
      nowMs < this.#untilMs &&
      name === this.#name &&
      namespace === this.#namespace &&
      authorization === this.#authorization
    );
  }

  remember(authorization: string, { namespace, name }: Target, nowMs: number): void {
    this.#authorization = authorization;
    this.#namespace = namespace;
    this.#name = name;
    this.#untilMs = nowMs + rememberMs;
  }
}

/** Remembers per connection, so that a credential is kept no longer than the connection it came on. */
export class AdmissionMemory {
  readonly #byConnection = new WeakMap<Duplex, ConnectionMemory>();

  of(connection: Duplex): ConnectionMemory {
    const known = this.#byConnection.get(connection);
    if (known !== undefined) return known;
    const memory = new ConnectionMemory();
    this.#byConnection.set(connection, memory);
    return memory;
  }
}
