import type { KubeObject, NetworkPolicy, SandboxTemplate } from "@agent-sandbox/api";
import {
  controllerOf,
  ignore,
  isReasonOf,
  keyOf,
  labelKeys,
  nameHash,
  networkPolicies,
  pods,
  refersTo,
  sandboxes,
  sandboxTemplates,
} from "@agent-sandbox/api";
import {
  type Controller,
  defineController,
  done,
  initialListPriority,
  type Outcome,
  type WorkQueue,
} from "@agent-sandbox/kube";
import { byNameHash, byTemplateRef, scoped } from "../caches.ts";
import type { ExtensionContext } from "../extension-context.ts";
import { statusPatch } from "../status-patch.ts";
import { isManaged, policyName } from "./default-policy.ts";
import { type PolicyAction, planTemplate, type TemplateObserved, type TemplatePlan, templateStatus } from "./plan.ts";

/** Keeps each template's network policy and says on the template whether it holds. Keys are templates. */
export function templateController(context: ExtensionContext): Controller {
  const { clock, random, telemetry, caches, extensions, config } = context;
  const reconciler = new TemplateReconciler(context);
  return defineController({
    name: "sandboxtemplate",
    clock,
    random,
    telemetry,
    workers: Math.max(1, config.templateWorkers),
    caches: caches.informers,
    observe: (queue) => watchTemplates(context, queue),
    span: (key) => (extensions.templates.get(key) === undefined ? undefined : { name: "ReconcileSandboxTemplate" }),
    reconcile: (key, signal) => reconciler.reconcile(key, signal),
  });
}

class TemplateReconciler {
  readonly #context: ExtensionContext;

  constructor(context: ExtensionContext) {
    this.#context = context;
  }

  /** One pass over one template. */
  async reconcile(key: string, signal: AbortSignal): Promise<Outcome> {
    const template = this.#context.extensions.templates.get(key);
    if (template === undefined) return done;
    const observed = observeTemplate(this.#context, template);
    const plan = planTemplate(observed);
    if (plan.metadata !== undefined && (await this.#mayPatch(template, signal))) {
      await this.#patchMetadata(template, plan.metadata, signal);
    }
    let failure: unknown;
    let isOutdated = false;
    if (plan.policy !== undefined) {
      isOutdated = await this.#applyPolicy(template, plan.policy, signal).catch((error: unknown) => {
        failure = error;
        return false;
      });
    }
    // After a failed write the policy is what it was, and the status must not claim more.
    await this.#report(
      template,
      failure === undefined ? plan : { status: templateStatus(observed, undefined) },
      signal,
    );
    if (failure !== undefined) throw failure;
    return isOutdated ? { kind: "requeue-after", afterMs: 0 } : done;
  }

  /** The last hold on a policy is given up only when the server, too, knows of no Sandbox that needs it. */
  async #mayPatch(template: SandboxTemplate, signal: AbortSignal): Promise<boolean> {
    if (template.metadata.deletionTimestamp === undefined) return true;
    const { name, namespace = "" } = template.metadata;
    const labelSelector = `${labelKeys.templateRefHash}=${nameHash(name)}`;
    const query = { namespace, labelSelector, limit: 1, signal };
    const needing = await this.#context.client.list(sandboxes, query);
    const running = await this.#context.client.list(pods, query);
    return needing.items.length === 0 && running.items.length === 0;
  }

  async #patchMetadata(
    template: SandboxTemplate,
    metadata: NonNullable<TemplatePlan["metadata"]>,
    signal: AbortSignal,
  ): Promise<void> {
    const { client, extensions } = this.#context;
    const { name, namespace = "", uid, resourceVersion } = template.metadata;
    // Finalizers are a list: sent whole, so only against the version it was read from.
    const lock = metadata.finalizers === undefined ? {} : { resourceVersion };
    const body = { metadata: { uid, ...lock, ...metadata } };
    const patched = await client
      .patch(sandboxTemplates, { namespace, name }, { type: "merge", body }, { signal })
      .catch(ignore("NotFound"));
    if (patched !== undefined) extensions.templates.wrote(patched);
  }

  /** Resolves with whether the plan was made from an old view, so that the next pass must look again. */
  async #applyPolicy(template: SandboxTemplate, action: PolicyAction, signal: AbortSignal): Promise<boolean> {
    const { client, extensions } = this.#context;
    const namespace = template.metadata.namespace ?? "";
    switch (action.do) {
      case "create-policy":
        try {
          extensions.networkPolicies.wrote(await client.create(networkPolicies, action.policy, { signal }));
          return false;
        } catch (error) {
          if (!isReasonOf(error, "AlreadyExists")) throw error;
          const name = action.policy.metadata.name;
          extensions.networkPolicies.wrote(await client.get(networkPolicies, { namespace, name }, { signal }));
          return true;
        }
      case "update-policy":
        extensions.networkPolicies.wrote(await client.update(networkPolicies, action.policy, { signal }));
        return false;
      case "delete-policy":
        if (await this.#isManagedAgain(template, signal)) return true;
        await client
          .delete(networkPolicies, { namespace, name: action.name }, { uid: action.uid, signal })
          .catch(ignore("NotFound"));
        return false;
    }
  }

  /** A policy is taken away only on the server's word: by an old view, Pods would run unrestricted until the watch caught up. */
  async #isManagedAgain(template: SandboxTemplate, signal: AbortSignal): Promise<boolean> {
    const { client, extensions } = this.#context;
    const { name, namespace = "", uid } = template.metadata;
    const now = await client.get(sandboxTemplates, { namespace, name }, { signal }).catch(ignore("NotFound"));
    if (now === undefined || now.metadata.uid !== uid || !isManaged(now)) return false;
    extensions.templates.wrote(now);
    return true;
  }

  async #report(template: SandboxTemplate, plan: TemplatePlan, signal: AbortSignal): Promise<void> {
    if (plan.status === undefined) return;
    const patch = statusPatch(template.status, plan.status);
    if (patch === undefined) return;
    const { client, extensions } = this.#context;
    const { name, namespace = "", uid } = template.metadata;
    const body = { metadata: { uid }, status: patch };
    const options = { subresource: "status", signal };
    const patched = await client
      .patch(sandboxTemplates, { namespace, name }, { type: "merge", body }, options)
      // A cluster whose CRD has no status subresource for templates cannot hold conditions; the policy still works.
      .catch(ignore("NotFound"));
    if (patched !== undefined) extensions.templates.wrote(patched);
  }
}

/** Collects what a pass needs from the caches. */
function observeTemplate(context: ExtensionContext, template: SandboxTemplate): TemplateObserved {
  const { extensions, caches, clock, config } = context;
  const hash = scoped(template, nameHash(template.metadata.name));
  return {
    template,
    policy: extensions.networkPolicies.get(scoped(template, policyName(template.metadata.name))),
    dependants: caches.sandboxes.byIndex(byTemplateRef, hash).length + caches.pods.byIndex(byTemplateRef, hash).length,
    collidesWith: olderTemplate(template, extensions.templates.byIndex(byNameHash, hash)),
    routerNamespace: config.routerNamespace,
    nowMs: clock.nowMs(),
  };
}

/** The older of two templates keeps the hash; by name where they are of one second. */
export function olderTemplate(template: SandboxTemplate, sameHash: readonly SandboxTemplate[]): string | undefined {
  const rank = ({ metadata }: SandboxTemplate): string => `${metadata.creationTimestamp ?? ""} ${metadata.name}`;
  return sameHash
    .filter((other) => other.metadata.name !== template.metadata.name && rank(other) < rank(template))
    .map((other) => other.metadata.name)
    .sort()[0];
}

/** Turns every relevant change into the key of a template. */
function watchTemplates({ extensions, caches }: ExtensionContext, queue: WorkQueue<string>): void {
  extensions.templates.addHandler({
    onAdd: (template, { initial }) => queue.add(keyOf(template), initial ? { priority: initialListPriority } : {}),
    onUpdate: (_old, template) => queue.add(keyOf(template)),
    onDelete: (last) => {
      for (const other of extensions.templates.byIndex(byNameHash, scoped(last, nameHash(last.metadata.name))))
        queue.add(keyOf(other));
    },
  });
  const touch = (policy: NetworkPolicy): void => {
    const owner = controllerOf(policy);
    if (refersTo(owner, sandboxTemplates)) queue.add(scoped(policy, owner?.name ?? ""));
    // A stranger's policy under a reserved name blocks a template too.
    const name = policy.metadata.name.replace(/-network-policy$/, "");
    if (extensions.templates.get(scoped(policy, name)) !== undefined) queue.add(scoped(policy, name));
  };
  extensions.networkPolicies.addHandler({
    onAdd: touch,
    onUpdate: (_old, policy) => touch(policy),
    onDelete: touch,
  });
  // The last Sandbox or Pod of a template that is being deleted lets it go.
  const release = {
    onDelete: (last: KubeObject) => {
      const hash = last.metadata.labels?.[labelKeys.templateRefHash];
      if (hash === undefined) return;
      for (const template of extensions.templates.byIndex(byNameHash, scoped(last, hash))) {
        if (template.metadata.deletionTimestamp !== undefined) queue.add(keyOf(template));
      }
    },
  };
  caches.sandboxes.addHandler(release);
  caches.pods.addHandler(release);
}
