import { ignore, type KubeObject, type Namespace, namespaces, type Resource, semanticEqual } from "@agent-sandbox/api";
import { type Controller, defineController, done, type Outcome } from "@agent-sandbox/kube";
import type { Caches } from "../caches.ts";
import { onChange } from "../on-change.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";
import { planNamespaceDeletion, type Remaining } from "./plan.ts";

/** Objects of one kind looked at to say what is left; more only makes the message longer. */
const sampleMax = 100;

/** Empties namespaces that are being deleted, kind by kind, and then lets them go. Keys are namespace names. */
export function namespaceDeletion(context: StandinContext, { namespaces: cache, everyObject }: Caches): Controller {
  return defineController({
    name: "namespace-deletion",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [cache, everyObject],
    observe: (queue) => {
      const wake = (name: string) => {
        if (cache.get(name)?.metadata.deletionTimestamp !== undefined) queue.add(name);
      };
      onChange(cache, ({ metadata }) => wake(metadata.name));
      everyObject.onChange(({ object }, deleted) => {
        if (deleted && object.metadata.namespace !== undefined) wake(object.metadata.namespace);
      });
    },
    reconcile: async (name, signal) => {
      const namespace = cache.get(name);
      if (namespace?.metadata.deletionTimestamp === undefined) return done;
      const kinds = everyObject.namespacedResources();
      // The server is asked, not the cache: an object made a moment before must not be left behind.
      const remaining = await Promise.all(kinds.map((kind) => remainingOf(context, kind, name, signal)));
      const plan = planNamespaceDeletion({
        namespace,
        remaining: remaining.map((each) => each.summary),
        nowMs: context.clock.nowMs(),
      });
      if (plan.kind === "keep") return done;
      if (plan.kind === "finalize") return finalize(context, namespace, plan.finalizers, signal);
      await reportRemaining(context, namespace, plan.conditions, signal);
      for (const { resource, objects } of remaining)
        if (objects.some(isUntouched)) await deleteAll(context, resource, name, signal);
      return { kind: "done", actions: remaining.length };
    },
  });
}

interface KindRemaining {
  readonly resource: Resource<KubeObject>;
  readonly objects: readonly KubeObject[];
  readonly summary: Remaining;
}

async function remainingOf(
  { client }: StandinContext,
  resource: Resource<KubeObject>,
  namespace: string,
  signal: AbortSignal,
): Promise<KindRemaining> {
  const list = await client.list(resource, { namespace, limit: sampleMax, signal });
  const finalizers: Record<string, number> = {};
  for (const { metadata } of list.items)
    for (const name of metadata.finalizers ?? []) finalizers[name] = (finalizers[name] ?? 0) + 1;
  const count = list.items.length + (list.metadata.remainingItemCount ?? 0);
  const plural = resource.group === "" ? `${resource.resource}.` : `${resource.resource}.${resource.group}`;
  return { resource, objects: list.items, summary: { resource: plural, count, finalizers } };
}

/** Objects that are on their way out already wait for their finalizers or their grace period; a second delete adds nothing. */
function isUntouched({ metadata }: KubeObject): boolean {
  return metadata.deletionTimestamp === undefined;
}

async function deleteAll(
  { client }: StandinContext,
  resource: Resource<KubeObject>,
  namespace: string,
  signal: AbortSignal,
): Promise<void> {
  await client
    .deleteCollection(resource, { namespace, propagationPolicy: "Background", signal })
    .catch(ignore("NotFound"));
}

async function finalize(
  { client }: StandinContext,
  namespace: Namespace,
  finalizers: string[],
  signal: AbortSignal,
): Promise<Outcome> {
  const body: Namespace = { ...namespace, spec: { ...namespace.spec, finalizers } };
  await client.update(namespaces, body, { subresource: "finalize", signal }).catch(ignore("NotFound"));
  return { kind: "done", actions: 1 };
}

async function reportRemaining(
  { client }: StandinContext,
  namespace: Namespace,
  conditions: NonNullable<NonNullable<Namespace["status"]>["conditions"]>,
  signal: AbortSignal,
): Promise<void> {
  const others = (namespace.status?.conditions ?? []).filter(
    ({ type }) => !conditions.some((each) => each.type === type),
  );
  const status = { phase: "Terminating", conditions: [...others, ...conditions] };
  if (semanticEqual(status, namespace.status)) return;
  const patch = { type: "merge", body: { metadata: { uid: namespace.metadata.uid }, status } } as const;
  await client
    .patch(namespaces, { name: namespace.metadata.name }, patch, { subresource: "status", signal })
    .catch(ignore("NotFound"));
}
