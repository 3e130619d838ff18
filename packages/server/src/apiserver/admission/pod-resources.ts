import { type Container, type PodSpec, parseQuantity, Quantity, zeroQuantity } from "@agent-sandbox/api";

/** Amounts by resource name, for example `cpu`. */
export type Amounts = ReadonlyMap<string, Quantity>;

/**
 * What a Pod asks for (or may use at most): the sum over its containers, or what its start needs if that is more, plus overhead.
 * Sidecars (init containers that stay) count beside everything that runs after them.
 */
export function podResources(spec: PodSpec, kind: "requests" | "limits"): Amounts {
  const running = new Map<string, Quantity>();
  for (const container of spec.containers) addTo(running, amountsOf(container, kind));
  let sidecars = new Map<string, Quantity>();
  const starting = new Map<string, Quantity>();
  for (const container of spec.initContainers ?? []) {
    const own = amountsOf(container, kind);
    if (container.restartPolicy === "Always") {
      addTo(running, own);
      addTo(sidecars, own);
      raiseTo(starting, sidecars);
    } else {
      const together = new Map(sidecars);
      addTo(together, own);
      raiseTo(starting, together);
    }
    sidecars = new Map(sidecars);
  }
  raiseTo(running, starting);
  const podLevel = parseAmounts(spec.resources?.[kind]);
  for (const [name, amount] of podLevel) running.set(name, amount);
  const overhead = parseAmounts(spec.overhead);
  for (const [name, amount] of overhead)
    if (kind === "requests" || running.has(name)) addTo(running, new Map([[name, amount]]));
  return running;
}

function amountsOf(container: Container, kind: "requests" | "limits"): Amounts {
  return parseAmounts(container.resources?.[kind]);
}

/** Reads a resource list; amounts that are no quantities are left to schema validation and count as nothing. */
export function parseAmounts(list: Readonly<Record<string, string>> | undefined): Amounts {
  return new Map(Object.entries(list ?? {}).map(([name, text]) => [name, parseQuantity(text)]));
}

/** Adds amounts to a sum in place. */
export function addTo(sum: Map<string, Quantity>, amounts: Amounts): void {
  for (const [name, amount] of amounts) sum.set(name, (sum.get(name) ?? zeroQuantity).add(amount));
}

function raiseTo(most: Map<string, Quantity>, amounts: Amounts): void {
  for (const [name, amount] of amounts) {
    const known = most.get(name);
    if (known === undefined || known.compare(amount) < 0) most.set(name, amount);
  }
}

/** A count as a quantity. */
export function countOf(number: number): Quantity {
  return new Quantity(BigInt(number) * 1_000_000_000n);
}
