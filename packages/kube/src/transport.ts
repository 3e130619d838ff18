import type { Duplex } from "node:stream";

/**
 * What a request is for, as its caller says it; a transport made by `prioritized` goes by it, every other ignores it.
 * `urgent`: a client waits for what the answer leads to; it is sent at once. `background`: no client waits for it yet; it makes way for urgent ones.
 * `stream`: a watch, or the list that an informer begins with; its answer is long, so that it neither waits nor counts as under way.
 */
export type RequestPriority = "urgent" | "background" | "stream";

/** The priority of a request whose caller says none: a request is held back only where its caller knows that no client waits for it. */
export const requestPriorityDefault: RequestPriority = "urgent";

/** One HTTP request to an API server, without the parts that credentials add. */
export interface KubeRequest {
  readonly method: string;
  /** Path with query, for example `/api/v1/namespaces?limit=1`. */
  readonly path: string;
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string;
  /** Default `requestPriorityDefault`. */
  readonly priority?: RequestPriority;
  /** Aborts the request and, after the response has begun, its body. */
  readonly signal?: AbortSignal;
}

/** The answer; `body` is read once, or cancelled through the request's signal or by ending the iteration early. */
export interface KubeResponse {
  readonly status: number;
  /** Names in lower case; repeated headers joined by a comma and a space. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: AsyncIterable<Uint8Array>;
}

/** A request that turns the connection into something else. */
export interface UpgradeRequest extends KubeRequest {
  /** The value of the `Upgrade` header: `websocket` or `SPDY/3.1`. Further headers go into `headers`. */
  readonly protocol: string;
}

/** What a `101 Switching Protocols` leaves: the raw connection. */
export interface UpgradedConnection {
  readonly headers: Readonly<Record<string, string>>;
  /** Bytes both ways; what the server sent right behind its answer is already in it. */
  readonly stream: Duplex;
}

/** Carries requests to one API server under one identity. An API server in the same process is one, too. */
export interface Transport {
  /** Resolves with any HTTP status; rejects only when there is no answer, or with the signal's reason. */
  request(request: KubeRequest): Promise<KubeResponse>;
  /** Rejects with an `ApiError` when the server answers anything but 101. */
  upgrade(request: UpgradeRequest): Promise<UpgradedConnection>;
  /** Ends every connection; requests under way fail. */
  close(): Promise<void>;
}
