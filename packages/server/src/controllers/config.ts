/** Everything an operator can set; `process/flags.ts` reads it from the command line. */
export interface ControllerConfig {
  /** DNS suffix of the cluster. */
  readonly clusterDomain: string;
  /** Run template, pool and claim controllers too. */
  readonly extensions: boolean;
  readonly sandboxWorkers: number;
  readonly claimWorkers: number;
  readonly warmPoolWorkers: number;
  readonly templateWorkers: number;
  /** Delay of metadata patches to Pods that are ours already; cut to one second. 0: none. */
  readonly writeBehindMs: number;
  /** Most members one pass over a pool creates or deletes. */
  readonly poolBatchMax: number;
  /** Wait after a claim took a member before the pool refills. */
  readonly replenishDelayMs: number;
  /** Members per second and pool; 0: no limit. */
  readonly refillRate: number;
  /** How long a member may be not Ready before it is replaced. */
  readonly readinessGraceMs: number;
  readonly unschedulableRecheckMs: number;
  /** Mark unclaimed members as safe to evict. */
  readonly poolEviction: boolean;
  readonly claimEvents: boolean;
  readonly claimObservabilityAnnotations: boolean;
  /** Domains that labels of `additionalPodMetadata` may use. */
  readonly allowedLabelDomains: readonly string[];
  /** Keep only objects with the tracking label in the Pod and Service caches. */
  readonly cacheLabelSelectors: boolean;
  /** Where the router runs; the default network policy lets it in. */
  readonly routerNamespace: string;
  /** Deep-freeze cached objects, so that a mutation throws. */
  readonly freezeCaches: boolean;
}

/** The reference's defaults. */
export const configDefaults: ControllerConfig = {
  clusterDomain: "cluster.local",
  extensions: false,
  sandboxWorkers: 100,
  claimWorkers: 50,
  warmPoolWorkers: 1,
  templateWorkers: 1,
  writeBehindMs: 0,
  poolBatchMax: 300,
  replenishDelayMs: 0,
  refillRate: 0,
  readinessGraceMs: 300_000,
  unschedulableRecheckMs: 60_000,
  poolEviction: true,
  claimEvents: true,
  claimObservabilityAnnotations: true,
  allowedLabelDomains: ["sandbox.users.io"],
  cacheLabelSelectors: false,
  routerNamespace: "agent-sandbox-system",
  freezeCaches: false,
};
