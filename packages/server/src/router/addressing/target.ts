/** How a request named its sandbox. */
export type AddressingForm = "header" | "host" | "path";

/** What a request wants to reach: a port of a sandbox, and the path as the sandbox is to see it. */
export interface Target {
  readonly form: AddressingForm;
  readonly namespace: string;
  readonly name: string;
  readonly port: number;
  /** The raw request target behind the addressing part: never decoded, never normalised. */
  readonly path: string;
  /** For the path form: what was cut off, so that cookies and redirects can be bound to it. */
  readonly pathPrefix: string;
  /** Hints of published clients; they must belong to the named sandbox. */
  readonly uid?: string;
  readonly podIp?: string;
  /** The caller's limit for the whole exchange; the router's own limit caps it. */
  readonly timeoutMs?: number;
}
