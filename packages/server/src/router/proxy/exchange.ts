import type { IncomingMessage, ServerResponse } from "node:http";
import type { Target } from "../addressing/target.ts";
import type { ReadyRoute } from "../sandboxes/waker.ts";

/** A request and its answer, of either version of HTTP. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly target: Target;
  readonly protocol: "http" | "https";
}

/** An exchange whose sandbox is awake. */
export interface RoutedExchange extends Exchange {
  readonly route: ReadyRoute;
  readonly address: string;
  /** Aborts when the caller goes away. */
  readonly signal: AbortSignal;
}
