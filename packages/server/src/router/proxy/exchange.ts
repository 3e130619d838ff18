import type { IncomingMessage, ServerResponse } from "node:http";
import type { Target } from "../addressing/target.ts";

/** A request and its answer, of either version of HTTP. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly target: Target;
  readonly protocol: "http" | "https";
}

/** An exchange whose sandbox is awake. */
export interface RoutedExchange extends Exchange {
  readonly address: string;
  /** Where the sandbox is at this moment; it may have moved since the exchange began. */
  currentAddress(): string;
}
