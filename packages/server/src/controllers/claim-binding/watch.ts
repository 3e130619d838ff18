import type { Sandbox, SandboxClaim, SandboxWarmPool } from "@agent-sandbox/api";
import {
  controllerOf,
  findCondition,
  isConditionTrue,
  keyOf,
  namespacedKey,
  refersTo,
  sandboxClaims,
  semanticEqual,
} from "@agent-sandbox/api";
import { initialListPriority, type WorkQueue } from "@agent-sandbox/kube";
import { byPool, byTemplate, scoped } from "../caches.ts";
import type { ClaimContext } from "./claim-context.ts";

/** Feeds the claim queue and the warm queue from watch events. */
export function watchClaims(context: ClaimContext, queue: WorkQueue<string>): void {
  watchOwnEvents(context, queue);
  watchMembers(context, queue);
  watchSources(context, queue);
}

function watchOwnEvents({ extensions, times, clock, warm }: ClaimContext, queue: WorkQueue<string>): void {
  const seen = (claim: SandboxClaim): void => {
    const measured = isConditionTrue(claim.status?.conditions, "Ready");
    times.seen(keyOf(claim), claim.metadata.uid ?? "", clock.nowMs(), measured);
  };
  extensions.claims.addHandler({
    onAdd: (claim, { initial }) => {
      seen(claim);
      queue.add(keyOf(claim), initial ? { priority: initialListPriority } : {});
    },
    onUpdate: (_old, claim) => {
      seen(claim);
      queue.add(keyOf(claim));
    },
    onDelete: (last) => {
      times.forget(keyOf(last), last.metadata.uid);
      warm.unwait(keyOf(last));
      queue.add(keyOf(last));
    },
  });
}

function watchMembers({ caches, warm, ahead }: ClaimContext, queue: WorkQueue<string>): void {
  const touchOwner = (sandbox: Sandbox): void => {
    const owner = controllerOf(sandbox);
    if (refersTo(owner, sandboxClaims)) queue.add(scoped(sandbox, owner?.name ?? ""));
  };
  caches.sandboxes.addHandler({
    onAdd: (sandbox) => {
      warm.observe(sandbox);
      touchOwner(sandbox);
    },
    onUpdate: (old, sandbox) => {
      warm.observe(sandbox);
      if (ahead.delete(keyOf(sandbox)) || isRelevantChange(old, sandbox)) touchOwner(sandbox);
    },
    onDelete: (last) => {
      warm.remove(keyOf(last));
      ahead.delete(keyOf(last));
      touchOwner(last);
    },
  });
}

/** Expiry travels only as a reason, so whole conditions are compared; a change of hands counts, too. */
function isRelevantChange(old: Sandbox, sandbox: Sandbox): boolean {
  const deleting = (object: Sandbox): boolean => object.metadata.deletionTimestamp !== undefined;
  if (deleting(old) !== deleting(sandbox) || controllerOf(old)?.uid !== controllerOf(sandbox)?.uid) return true;
  if (!semanticEqual(old.status?.podIPs, sandbox.status?.podIPs)) return true;
  return ["Ready", "Finished"].some(
    (type) =>
      !semanticEqual(findCondition(old.status?.conditions, type), findCondition(sandbox.status?.conditions, type)),
  );
}

function watchSources({ extensions, warm }: ClaimContext, queue: WorkQueue<string>): void {
  const touchUnbound = (pool: SandboxWarmPool): void => {
    for (const claim of claimsOf(pool)) if ((claim.status?.sandbox?.name ?? "") === "") queue.add(keyOf(claim));
  };
  const claimsOf = (pool: SandboxWarmPool): SandboxClaim[] =>
    extensions.claims
      .byIndex(byPool, scoped(pool, pool.metadata.name))
      .filter((claim) => claim.metadata.deletionTimestamp === undefined);
  extensions.pools.addHandler({
    onAdd: touchUnbound,
    // Status writes of a busy pool must not wake every claim.
    onUpdate: (old, pool) => {
      if (old.metadata.generation !== pool.metadata.generation) touchUnbound(pool);
    },
    onDelete: (last) => {
      warm.removePool(last.metadata.uid ?? "");
      touchUnbound(last);
    },
  });
  const touchUsers = (namespace: string, templateName: string, unboundOnly: boolean): void => {
    for (const pool of extensions.pools.byIndex(byTemplate, namespacedKey(namespace, templateName))) {
      for (const claim of claimsOf(pool)) {
        if (!unboundOnly || (claim.status?.sandbox?.name ?? "") === "") queue.add(keyOf(claim));
      }
    }
  };
  extensions.templates.addHandler({
    onAdd: ({ metadata }) => touchUsers(metadata.namespace ?? "", metadata.name, false),
  });
  // A template serves only under its policy, so the policy's arrival brings back claims that wait.
  extensions.networkPolicies.addHandler({
    onAdd: ({ metadata }) => touchUsers(metadata.namespace ?? "", metadata.name.replace(/-network-policy$/, ""), true),
  });
}
