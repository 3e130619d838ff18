import { type Container, type Pod, parseQuantity, Quantity, zeroQuantity } from "@agent-sandbox/api";

/** What a sandbox costs beyond its containers where its runtime class does not say: an idle sentry with its gofer keeps about 30 MiB. */
const sandboxOverhead: Readonly<Record<string, string>> = { memory: "32Mi" };

/** Amounts by resource name. */
export type Amounts = Map<string, Quantity>;

/** Objects of a cache never change, so that what one asks for is computed once. */
const known = new WeakMap<Pod, Amounts>();

/** What a Pod takes from a node: its running containers, or its start if that needs more, plus the overhead, plus one place. */
export function podRequests(pod: Pod): Amounts {
  const requests = known.get(pod) ?? sumRequests(pod);
  known.set(pod, requests);
  return requests;
}

function sumRequests({ spec }: Pod): Amounts {
  const running: Amounts = new Map();
  for (const container of spec?.containers ?? []) add(running, requestsOf(container));
  const sidecars: Amounts = new Map();
  const starting: Amounts = new Map();
  for (const container of spec?.initContainers ?? []) {
    const together = new Map(sidecars);
    add(together, requestsOf(container));
    raise(starting, together);
    if (container.restartPolicy !== "Always") continue;
    add(sidecars, requestsOf(container));
    add(running, requestsOf(container));
  }
  raise(running, starting);
  add(running, amounts(spec?.overhead ?? sandboxOverhead));
  return running.set("pods", new Quantity(1_000_000_000n));
}

function requestsOf({ resources }: Container): Amounts {
  // A limit without a request is a request, as in Kubernetes.
  return amounts({ ...resources?.limits, ...resources?.requests });
}

/** Reads a resource list. */
export function amounts(list: Readonly<Record<string, string>> | undefined): Amounts {
  return new Map(Object.entries(list ?? {}).map(([name, text]) => [name, parseQuantity(text)]));
}

/** Adds amounts to a sum in place. */
export function add(sum: Amounts, more: Amounts): void {
  for (const [name, amount] of more) sum.set(name, (sum.get(name) ?? zeroQuantity).add(amount));
}

/** Takes amounts from a sum in place. */
export function subtract(sum: Amounts, less: Amounts): void {
  for (const [name, amount] of less) sum.set(name, (sum.get(name) ?? zeroQuantity).sub(amount));
}

function raise(most: Amounts, other: Amounts): void {
  for (const [name, amount] of other) {
    if ((most.get(name) ?? zeroQuantity).compare(amount) < 0) most.set(name, amount);
  }
}
