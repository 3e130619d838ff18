import type { Alias, KubeObject } from "@agent-sandbox/api";
import { findCondition, ignore, isReasonOf, keyOf, sandboxWarmPools } from "@agent-sandbox/api";
import { type Controller, defineController, done, type Outcome, type WorkQueue } from "@agent-sandbox/kube";
import { isAnswered } from "../answered.ts";
import { byTemplate, scoped } from "../caches.ts";
import type { ExtensionContext } from "../extension-context.ts";
import { errorText } from "../sandbox-lifecycle/error-text.ts";
import { statusPatch } from "../status-patch.ts";
import type { AliasCaches } from "./caches.ts";
import { type AliasKind, claimAliases, poolAliases, templateAliases } from "./kinds.ts";
import { type AliasAction, type AliasObserved, type AliasPlan, planAlias, problemStatus, type Real } from "./plan.ts";

/** Makes contexts, each with the name under which events are written. */
type Extend = (name: string, priority: "background" | "urgent") => ExtensionContext;

/** Translates the kinds that articles print into those that are served (ADR 51): one controller for each kind. */
export function aliasControllers(extend: Extend, aliases: AliasCaches): Controller[] {
  const templates = extend("sandboxtemplatealias-controller", "background");
  const pools = extend("sandboxwarmpoolalias-controller", "background");
  // A user waits for the sandbox behind it.
  const claims = extend("sandboxclaimalias-controller", "urgent");
  return [
    aliasController(
      "sandboxtemplatealias",
      { context: templates, aliases },
      templateAliases(templates.extensions, aliases),
    ),
    aliasController("sandboxwarmpoolalias", { context: pools, aliases }, poolAliases(pools.extensions, aliases)),
    aliasController("sandboxclaimalias", { context: claims, aliases }, claimAliases(claims.extensions, aliases)),
  ];
}

interface Ground {
  readonly context: ExtensionContext;
  readonly aliases: AliasCaches;
}

function aliasController<A extends Alias, R extends Real>(
  name: string,
  { context, aliases }: Ground,
  kind: AliasKind<A, R>,
): Controller {
  const { clock, random, telemetry, caches } = context;
  const reconciler = new AliasReconciler(context, kind);
  return defineController({
    name,
    clock,
    random,
    telemetry,
    workers: 1,
    caches: [...caches.informers, ...aliases.informers],
    observe: (queue) => {
      watchPairs(kind, queue);
      if (name === "sandboxclaimalias") watchTemplates(context, aliases, queue);
    },
    reconcile: (key, signal) => reconciler.reconcile(key, signal),
  });
}

/** An alias and its object have one name, so that both are under one key. */
function watchPairs<A extends Alias, R extends Real>(
  { aliases, reals }: AliasKind<A, R>,
  queue: WorkQueue<string>,
): void {
  aliases.addHandler({
    onAdd: (alias) => queue.add(keyOf(alias)),
    onUpdate: (_old, alias) => queue.add(keyOf(alias)),
  });
  const touch = (real: KubeObject): void => {
    if (aliases.get(keyOf(real)) !== undefined) queue.add(keyOf(real));
  };
  reals.addHandler({ onAdd: touch, onUpdate: (_old, real) => touch(real), onDelete: touch });
}

/** Claims that were written before their template wait for it. */
function watchTemplates({ extensions }: ExtensionContext, { claims }: AliasCaches, queue: WorkQueue<string>): void {
  extensions.templates.addHandler({
    onAdd: (template) => {
      for (const claim of claims.byIndex(byTemplate, scoped(template, template.metadata.name))) {
        if (claim.status?.uid === undefined) queue.add(keyOf(claim));
      }
    },
  });
}

class AliasReconciler<A extends Alias, R extends Real> {
  readonly #context: ExtensionContext;
  readonly #kind: AliasKind<A, R>;

  constructor(context: ExtensionContext, kind: AliasKind<A, R>) {
    this.#context = context;
    this.#kind = kind;
  }

  /** One pass over one alias. */
  async reconcile(key: string, signal: AbortSignal): Promise<Outcome> {
    const { aliases, reals, translate, copied, aliasResource, realResource, readyType } = this.#kind;
    const alias = aliases.get(key);
    if (alias === undefined || alias.metadata.deletionTimestamp !== undefined) return done;
    const real = reals.get(key);
    const observed: AliasObserved<A, R> = {
      alias,
      real,
      aliasResource,
      realResource,
      readyType,
      translation: translate(alias, real),
      copied: real === undefined ? {} : copied(real),
      nowMs: this.#context.clock.nowMs(),
    };
    const plan = planAlias(observed);
    try {
      for (const action of plan.actions) await this.#apply(alias, action, signal);
    } catch (error) {
      if (isReasonOf(error, "Conflict") || !isAnswered(error)) throw error;
      // A quota, an admission check or the namespace's end: the same as if the user had written the object, so it is said where he looks.
      const status = problemStatus(observed, { reason: "Refused", message: errorText(error) });
      await this.#report(alias, { actions: [], status }, signal);
      return { kind: "failed", error };
    }
    await this.#report(alias, plan, signal);
    const actions = plan.actions.length;
    return plan.status === undefined ? { kind: "requeue-after", afterMs: 0, actions } : { kind: "done", actions };
  }

  async #apply(alias: A, action: AliasAction<R>, signal: AbortSignal): Promise<void> {
    const { client, extensions } = this.#context;
    const { reals, realResource } = this.#kind;
    switch (action.do) {
      case "create-pool": {
        const made = await client.create(sandboxWarmPools, action.pool, { signal }).catch(ignore("AlreadyExists"));
        if (made !== undefined) extensions.pools.wrote(made);
        return;
      }
      case "create": {
        const made = await client.create(realResource, action.object, { signal }).catch(ignore("AlreadyExists"));
        // The cache was behind: the next pass judges what is there.
        const { name, namespace = "" } = alias.metadata;
        reals.wrote(made ?? (await client.get(realResource, { namespace, name }, { signal })));
        return;
      }
      case "update":
        reals.wrote(await client.update(realResource, action.object, { signal }));
        return;
      case "delete-alias":
        return this.#deleteAlias(alias, action.lostUid, signal);
    }
  }

  /** On the server's word alone: by an old view, a user's object would go for one that exists. */
  async #deleteAlias(alias: A, lostUid: string, signal: AbortSignal): Promise<void> {
    const { client, clock } = this.#context;
    const { reals, realResource, aliases, aliasResource } = this.#kind;
    const { name, namespace = "", uid = "" } = alias.metadata;
    const live = await client.get(realResource, { namespace, name }, { signal }).catch(ignore("NotFound"));
    if (live !== undefined && live.metadata.uid === lostUid) {
      reals.wrote(live);
      return;
    }
    await client.delete(aliasResource, { namespace, name }, { uid, signal }).catch(ignore("NotFound"));
    aliases.deleted(alias, new Date(clock.nowMs()).toISOString());
  }

  async #report(alias: A, { status }: AliasPlan<A, R>, signal: AbortSignal): Promise<void> {
    const patch = status && statusPatch(alias.status, status);
    if (patch === undefined) return;
    const { client } = this.#context;
    const { aliases, aliasResource } = this.#kind;
    const { name, namespace = "", uid } = alias.metadata;
    const body = { metadata: { uid }, status: patch };
    const written = await client
      .patch(aliasResource, { namespace, name }, { type: "merge", body }, { subresource: "status", signal })
      .catch(ignore("NotFound"));
    if (written !== undefined) aliases.wrote(written);
    this.#announce(alias, status);
  }

  /** Says once why there is no object; the condition says it for as long as it lasts. */
  #announce(alias: A, status: NonNullable<A["status"]> | undefined): void {
    const before = findCondition(alias.status?.conditions, "Translated")?.reason;
    const translated = findCondition(status?.conditions, "Translated");
    if (translated === undefined || translated.status === "True" || translated.reason === before) return;
    const { aliasResource } = this.#kind;
    const regarding = {
      ...alias,
      apiVersion: `${aliasResource.group}/${aliasResource.version}`,
      kind: aliasResource.kind,
    };
    const { reason, message: note } = translated;
    this.#context.events.record(regarding, { type: "Warning", reason, action: "Translating", note });
  }
}
