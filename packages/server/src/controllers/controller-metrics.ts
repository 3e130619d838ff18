import { Counter, Gauge, Histogram } from "prom-client";
import type { MetricsRegistry } from "../telemetry/metrics.ts";

/** Buckets of claim start-up latencies, in milliseconds; the reference's. */
const startupBuckets = [100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000];
/** Buckets of creation latencies, in milliseconds; the reference's. */
const creationBuckets = [50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 300000, 600000];

/** Why a claim was not served from its pool: a closed set. */
export type ColdReason = "pool-empty" | "none-ready" | "claim-env" | "claim-volumes" | "policy";

/** Every metric the controllers write; names and label sets of the reference where it has them. */
export type ControllerMetrics = ReturnType<typeof openControllerMetrics>;

/** Registers the metrics. */
export function openControllerMetrics(registry: MetricsRegistry) {
  return {
    ...claimMetrics(registry),
    ...sandboxMetrics(registry),
    ...poolMetrics(registry),
    ...processMetrics(registry),
  };
}

function claimMetrics(registry: MetricsRegistry) {
  const registers = [registry];
  const latency = (name: string, help: string) =>
    new Histogram({ name, help, labelNames: ["launch_type", "sandbox_template"], buckets: startupBuckets, registers });
  return {
    claimStartup: latency(
      "agent_sandbox_claim_startup_latency_ms",
      "From the admission webhook's mark to claim Ready.",
    ),
    claimControllerStartup: latency(
      "agent_sandbox_claim_controller_startup_latency_ms",
      "From the controller's first sight of a claim to Ready.",
    ),
    claimClientStartup: latency(
      "agent_sandbox_client_claim_startup_latency_ms",
      "From the client's request mark to claim Ready.",
    ),
    creationLatency: new Histogram({
      name: "agent_sandbox_creation_latency_ms",
      help: "From the creation of the Sandbox to its Ready condition; for warm launches that is the pool's warm-up.",
      labelNames: ["namespace", "launch_type", "sandbox_template"],
      buckets: creationBuckets,
      registers,
    }),
    claimCreations: new Counter({
      name: "agent_sandbox_claim_creation_total",
      help: "Claims that got a Sandbox.",
      labelNames: ["namespace", "sandbox_template", "launch_type", "warmpool_name", "pod_condition", "created_by"],
      registers,
    }),
    claimColdStarts: new Counter({
      name: "agent_sandbox_claim_cold_start_total",
      help: "Cold starts by the reason why no warm Sandbox was used.",
      labelNames: ["namespace", "warmpool_name", "reason"],
      registers,
    }),
    adoptionConflicts: new Counter({
      name: "agent_sandbox_claim_adoption_conflict_total",
      help: "Adoptions that lost a race and were resolved by an authoritative read.",
      labelNames: ["namespace"],
      registers,
    }),
  };
}

function sandboxMetrics(registry: MetricsRegistry) {
  const registers = [registry];
  const transitions = (name: string, help: string) => new Counter({ name, help, labelNames: ["namespace"], registers });
  return {
    timeToReady: new Histogram({
      name: "agent_sandbox_time_to_ready_ms",
      help: "From the creation of a Sandbox to its first Ready.",
      labelNames: ["namespace", "launch_type"],
      buckets: creationBuckets,
      registers,
    }),
    suspends: transitions("agent_sandbox_suspends_total", "Sandboxes that became suspended."),
    resumes: transitions("agent_sandbox_resumes_total", "Sandboxes that left suspension."),
    expiries: transitions("agent_sandbox_expiries_total", "Sandboxes that expired."),
    podCreations: transitions("agent_sandbox_pod_creations_total", "Pods created for Sandboxes."),
    podReplacements: transitions("agent_sandbox_pod_replacements_total", "Failed Pods replaced by podFailurePolicy."),
    refusals: new Counter({
      name: "agent_sandbox_adoption_refusals_total",
      help: "Passes in which an object of the right name was not the Sandbox's to use.",
      labelNames: ["namespace", "step"],
      registers,
    }),
  };
}

function poolMetrics(registry: MetricsRegistry) {
  const registers = [registry];
  const labelNames = ["namespace", "warmpool_name"];
  const gauge = (name: string, help: string) => new Gauge({ name, help, labelNames, registers });
  return {
    poolDesired: gauge("agent_sandbox_warmpool_desired", "Members a pool should have."),
    poolSize: gauge("agent_sandbox_warmpool_size", "Unclaimed members of a pool."),
    poolReady: gauge("agent_sandbox_warmpool_ready", "Unclaimed members that are Ready."),
    poolHeld: gauge("agent_sandbox_warmpool_held", "Members kept although they cannot be scheduled."),
    poolStale: gauge("agent_sandbox_warmpool_stale", "Members that differ from their template."),
    poolQueue: gauge("agent_sandbox_warmpool_queue_depth", "Members that claims can take."),
    poolCreations: new Counter({
      name: "agent_sandbox_warmpool_creations_total",
      help: "Members created, by outcome.",
      labelNames: [...labelNames, "outcome"],
      registers,
    }),
  };
}

function processMetrics(registry: MetricsRegistry) {
  const registers = [registry];
  return {
    leader: new Gauge({
      name: "leader_election_master_status",
      help: "1 while this process leads.",
      labelNames: ["name"],
      registers,
    }),
    webhookPanics: new Counter({
      name: "controller_runtime_conversion_webhook_panics_total",
      help: "Conversions that failed by a bug.",
      registers,
    }),
    requests: new Counter({
      name: "rest_client_requests_total",
      help: "Requests to the API server by method and by the status of the answer.",
      labelNames: ["code", "method", "host"],
      registers,
    }),
    certificateReads: new Counter({
      name: "certwatcher_read_certificate_total",
      help: "Times the webhook's certificate files were read.",
      registers,
    }),
    certificateErrors: new Counter({
      name: "certwatcher_read_certificate_errors_total",
      help: "Times the webhook's certificate files could not be read.",
      registers,
    }),
  };
}
