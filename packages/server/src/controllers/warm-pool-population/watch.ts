import type { Sandbox } from "@agent-sandbox/api";
import { controllerOf, keyOf, namespacedKey, refersTo, sandboxWarmPools } from "@agent-sandbox/api";
import { initialListPriority, type WorkQueue } from "@agent-sandbox/kube";
import { byTemplate, scoped } from "../caches.ts";
import type { ExtensionContext } from "../extension-context.ts";

/** Turns every relevant change into the key of a pool. */
export function watchPools({ caches, extensions }: ExtensionContext, queue: WorkQueue<string>): void {
  extensions.pools.addHandler({
    onAdd: (pool, { initial }) => queue.add(keyOf(pool), initial ? { priority: initialListPriority } : {}),
    onUpdate: (_old, pool) => queue.add(keyOf(pool)),
    onDelete: (last) => queue.add(keyOf(last)),
  });
  const touchOwner = (sandbox: Sandbox): void => {
    const owner = controllerOf(sandbox);
    if (refersTo(owner, sandboxWarmPools)) queue.add(scoped(sandbox, owner?.name ?? ""));
  };
  caches.sandboxes.addHandler({
    onAdd: touchOwner,
    // The old owner is the pool that just lost a member to a claim.
    onUpdate: (old, sandbox) => {
      touchOwner(old);
      touchOwner(sandbox);
    },
    onDelete: touchOwner,
  });
  const touchUsers = (namespace: string, templateName: string): void => {
    for (const pool of extensions.pools.byIndex(byTemplate, namespacedKey(namespace, templateName)))
      queue.add(keyOf(pool));
  };
  const touchTemplate = (template: { metadata: { namespace?: string; name: string } }): void =>
    touchUsers(template.metadata.namespace ?? "", template.metadata.name);
  extensions.templates.addHandler({
    onAdd: touchTemplate,
    onUpdate: (_old, template) => touchTemplate(template),
    onDelete: touchTemplate,
  });
  // Members are created only under a policy, so its arrival brings the pool back.
  extensions.networkPolicies.addHandler({
    onAdd: ({ metadata }) => touchUsers(metadata.namespace ?? "", metadata.name.replace(/-network-policy$/, "")),
  });
}
