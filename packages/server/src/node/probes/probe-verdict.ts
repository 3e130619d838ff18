/** What the probes of one container last said. A container without a probe passes it. */
export interface ProbeVerdict {
  readonly isStarted: boolean;
  readonly isReady: boolean;
  /** Set when the liveness or startup probe has failed often enough; the container is to be restarted. */
  readonly failure?: { readonly probe: "liveness" | "startup"; readonly graceMs?: number };
}
