/** How often each kind of fault met each kind of action. */
export class Coverage {
  readonly #counts = new Map<string, number>();

  /** Counts one meeting. */
  add(fault: string, action: string): void {
    const key = `${fault} × ${action}`;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  /** Takes over another run's counts. */
  merge(entries: Iterable<readonly [string, number]>): void {
    for (const [key, count] of entries) this.#counts.set(key, (this.#counts.get(key) ?? 0) + count);
  }

  /** How often this pair met. */
  count(fault: string, action: string): number {
    return this.#counts.get(`${fault} × ${action}`) ?? 0;
  }

  /** All pairs, most frequent first. */
  entries(): [string, number][] {
    return [...this.#counts].sort(([, a], [, b]) => b - a);
  }
}

/** Faults of a request and the writes each can meet; a conflict cannot meet a create. */
export const writeActions = [
  "create pods",
  "create services",
  "create persistentvolumeclaims",
  "create sandboxes",
  "create networkpolicies",
  "create events",
  "patch pods",
  "patch services",
  "patch sandboxes",
  "patch sandboxes/status",
  "patch sandboxclaims",
  "patch sandboxclaims/status",
  "patch sandboxwarmpools/status",
  "patch sandboxtemplates",
  "patch sandboxtemplates/status",
  "delete pods",
  "delete services",
  "delete sandboxes",
  "delete sandboxclaims",
  "delete networkpolicies",
] as const;

/** What happens so seldom that faults must be likelier there, or they would never meet it. */
export const rareActions: ReadonlySet<string> = new Set([
  "create services",
  "create persistentvolumeclaims",
  "create networkpolicies",
  "patch services",
  "patch sandboxtemplates",
  "patch sandboxtemplates/status",
  "delete pods",
  "delete services",
  "delete sandboxes",
  "delete sandboxclaims",
  "delete networkpolicies",
]);

/** The writes among them. */
export const rareWrites: readonly string[] = writeActions.filter((action) => rareActions.has(action));

/** Where crashes are sent; what needs several things to come together is named more than once. */
export const crashTargets: readonly string[] = [
  ...rareWrites,
  ...Array.from({ length: 5 }, () => "delete sandboxclaims"),
  ...Array.from({ length: 3 }, () => "patch services"),
  ...Array.from({ length: 2 }, () => ["create networkpolicies", "create sandboxes", "patch pods"]).flat(),
  ...Array.from({ length: 2 }, () => [
    "patch sandboxtemplates/status",
    "delete services",
    "delete networkpolicies",
  ]).flat(),
  ...Array.from({ length: 2 }, () => ["delete sandboxes", "delete pods"]).flat(),
  "create services",
  "create events",
  "patch sandboxtemplates",
];

/** Writes whose object cannot vanish under them: a template is kept by its finalizer. */
const kept: ReadonlySet<string> = new Set(["patch sandboxtemplates", "patch sandboxtemplates/status"]);

/** What caches watch. */
export const watchedResources = [
  "sandboxes",
  "pods",
  "services",
  "persistentvolumeclaims",
  "sandboxclaims",
  "sandboxwarmpools",
  "sandboxtemplates",
  "networkpolicies",
] as const;

/** Every pair that a run must have seen. */
export function requiredPairs(): [string, string][] {
  const pairs: [string, string][] = [];
  for (const action of writeActions) {
    for (const fault of ["serverError", "lostRequest", "lostAnswer", "crash"]) pairs.push([fault, action]);
    if (action.startsWith("create")) continue;
    pairs.push(["conflict", action]);
    if (!kept.has(action)) pairs.push(["notFound", action]);
  }
  for (const resource of watchedResources) {
    for (const fault of ["watchBreak", "eventDoubled", "eventDelayed", "eventDropped", "gone"])
      pairs.push([fault, `watch ${resource}`]);
  }
  return pairs;
}

/** Over a run of 2,000 seeds each required pair is met at least so often. */
export const meetingsMin = 50;

/** The required pairs that met too seldom, each with its count. */
export function thinPairs(coverage: Coverage): string[] {
  return requiredPairs()
    .map(([fault, action]) => [`${fault} × ${action}`, coverage.count(fault, action)] as const)
    .filter(([, count]) => count < meetingsMin)
    .map(([pair, count]) => `${pair}: ${count}`);
}
