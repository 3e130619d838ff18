import type { PriorityOptions } from "@agent-sandbox/kube";

/**
 * How the controllers' requests are ordered, on either engine. What a claim needs before it is Ready is urgent; the refill of a pool, Events and whatever
 * else no client waits for is background. Who sends what at which priority is in `controllers.ts`.
 */
export const requestPriority: Omit<PriorityOptions, "clock"> = {
  // Of two cores that API server, scheduler and kubelets share, two requests are a fraction; a pool still fills at a hundred a second.
  backgroundMax: 2,
  // Keeps an API server of many cores busy over a network; more would only wait there instead of here.
  backgroundQuietMax: 32,
};
