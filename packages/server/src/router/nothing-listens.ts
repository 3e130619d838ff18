import type { Target } from "./addressing/target.ts";
import { RoutingError } from "./routing-error.ts";
import type { SandboxRoute } from "./sandboxes/sandbox-route.ts";

/**
 * A refused connection, told with what the caller can act on: which port, of which sandbox, and since when that one runs, because a server that ran
 * before a sleep does not run after it. The reference's words stay at the beginning. Other errors are as they were.
 */
export function explainRefusal(error: unknown, { namespace, name, state }: SandboxRoute, { port }: Target): unknown {
  if (!(error instanceof RoutingError) || !error.isUnsent || !isRefusal(error.cause)) return error;
  const since =
    state.kind === "ready" && state.since !== undefined ? `, which has been running since ${state.since}` : "";
  const detail = `${error.message}: nothing listens on port ${port} in sandbox ${namespace}/${name}${since}; a process started with run -d does not come back after sleep, one started with --service does`;
  return Object.assign(new RoutingError(error.status, detail, { cause: error.cause }), { isUnsent: true });
}

function isRefusal(cause: unknown): boolean {
  return (cause as NodeJS.ErrnoException | undefined)?.code === "ECONNREFUSED";
}
