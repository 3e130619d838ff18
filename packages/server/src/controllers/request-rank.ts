import type { KubeRequest, PriorityOptions, RequestRank } from "@agent-sandbox/kube";

/** Of two cores that API server, scheduler and kubelets share, two requests are a fraction; a pool still fills at a hundred a second. */
const backgroundMax = 2;

/** Keeps an API server of many cores busy over a network; more would only wait there instead of here. */
const backgroundQuietMax = 32;

/**
 * Somebody waits for a claim; nobody waits yet for the member that refills a pool, nor for an Event. What a claim needs
 * before it is Ready goes first: its own writes and the transfer of a Sandbox, which is a write of its metadata.
 */
export function rankOf({ method, path }: KubeRequest): RequestRank {
  if (/[?&](watch=(true|1)|limit=\d+)\b/.test(path)) return "free";
  if (method === "GET" || path.includes("/leases") || path.includes("/sandboxclaims")) return "urgent";
  return method === "PATCH" && /\/sandboxes\/[^/]+$/.test(path) ? "urgent" : "background";
}

/** How the controllers' requests are ordered, on either engine. */
export const requestPriority: Omit<PriorityOptions, "clock"> = { rankOf, backgroundMax, backgroundQuietMax };
