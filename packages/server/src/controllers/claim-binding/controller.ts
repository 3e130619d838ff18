import type { SandboxClaim } from "@agent-sandbox/api";
import { annotationKeys, labelKeys, normalizeCreator } from "@agent-sandbox/api";
import { type Controller, defineController, type PassSpan } from "@agent-sandbox/kube";
import { ClaimClock } from "../claim-status/claim-times.ts";
import type { ExtensionContext } from "../extension-context.ts";
import type { ClaimContext } from "./claim-context.ts";
import { claimReconciler } from "./reconcile.ts";
import { WarmQueue } from "./warm-queue.ts";
import { watchClaims } from "./watch.ts";

/** Serves claims: one Sandbox each, warm where a pool has one. Keys are claims. */
export function claimController(context: ExtensionContext): Controller {
  const { clock, random, telemetry, caches, extensions, config } = context;
  const controller = defineController({
    name: "sandboxclaim",
    clock,
    random,
    telemetry,
    workers: config.claimWorkers,
    caches: caches.informers,
    span: (key) => claimSpan(extensions.claims.get(key)),
    reconcile: (key, signal) => reconcile(key, signal),
  });
  const warm = new WarmQueue((claim) => controller.queue.add(claim));
  const own: ClaimContext = { ...context, warm, times: new ClaimClock(), unresolved: new Set(), ahead: new Set() };
  const reconcile = claimReconciler(own);
  watchClaims(own, controller.queue);
  return controller;
}

function claimSpan(claim: SandboxClaim | undefined): PassSpan | undefined {
  if (claim === undefined) return undefined;
  const { annotations, labels: own } = claim.metadata;
  const attributes = { [labelKeys.createdBy]: normalizeCreator(own?.[labelKeys.createdBy]) };
  return { name: "ReconcileSandboxClaim", parent: annotations?.[annotationKeys.traceContext], attributes };
}
