import type { KubeObject, PersistentVolumeClaim, Resource, Sandbox, Service } from "@agent-sandbox/api";
import { ApiError, ignore, isReasonOf, keyOf, persistentVolumeClaims, services } from "@agent-sandbox/api";
import type { Mirror } from "../mirror.ts";
import { planService, type ServiceAction, type ServicePlan } from "../sandbox-service/plan.ts";
import { planStorage, type StorageAction, type StoragePlan } from "../sandbox-storage/plan.ts";
import { type SandboxContext, sandboxFieldManager } from "./context.ts";
import { errorText } from "./error-text.ts";

/** Carries out the claims' part; resolves with the error text that keeps the Pod from being created, if any. */
export async function applyStorage(
  context: SandboxContext,
  sandbox: Sandbox,
  plan: StoragePlan,
  signal: AbortSignal,
): Promise<Error | undefined> {
  try {
    for (const action of plan.actions) await applyStorageAction(context, sandbox, action, signal);
  } catch (error) {
    return asError(error, signal);
  }
  return plan.failure === undefined ? undefined : new Error(plan.failure);
}

async function applyStorageAction(
  context: SandboxContext,
  sandbox: Sandbox,
  action: StorageAction,
  signal: AbortSignal,
): Promise<void> {
  const { client, caches } = context;
  const namespace = sandbox.metadata.namespace ?? "";
  if (action.do === "adopt-claim") {
    const { name, ownerReferences, resourceVersion } = action;
    const body = { metadata: { ownerReferences, resourceVersion } };
    const adopted = await client.patch(
      persistentVolumeClaims,
      { namespace, name },
      { type: "merge", body },
      { signal },
    );
    caches.volumeClaims.wrote(adopted);
    return;
  }
  try {
    const options = { fieldManager: sandboxFieldManager, signal };
    caches.volumeClaims.wrote(await client.create(persistentVolumeClaims, action.claim, options));
  } catch (error) {
    if (!isReasonOf(error, "AlreadyExists")) throw error;
    await settleExistingClaim(context, sandbox, action.claim, signal);
  }
}

/** The cache was behind: what exists is judged as it is, with the same rules. */
async function settleExistingClaim(
  context: SandboxContext,
  sandbox: Sandbox,
  wanted: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<void> {
  const { name } = wanted.metadata;
  const found = await readLive(context, persistentVolumeClaims, context.caches.volumeClaims, wanted, signal);
  if (found === undefined) throw new Error(`failed to get PVC: "${name}" existed and is gone`);
  const others = (sandbox.spec.volumeClaimTemplates ?? []).filter(
    (template) => `${template.metadata?.name ?? ""}-${sandbox.metadata.name}` === name,
  );
  const only: Sandbox = { ...sandbox, spec: { ...sandbox.spec, volumeClaimTemplates: others } };
  const plan = planStorage(only, new Map([[name, found]]));
  if (plan.failure !== undefined) throw new Error(plan.failure);
  for (const action of plan.actions)
    if (action.do === "adopt-claim") await applyStorageAction(context, only, action, signal);
}

/** How the Service step ended. */
export interface ServiceResult {
  readonly exists: boolean;
  readonly status: ServicePlan["status"];
  readonly error?: Error;
}

/** Carries out the Service's part. */
export async function applyService(
  context: SandboxContext,
  sandbox: Sandbox,
  plan: ServicePlan,
  signal: AbortSignal,
): Promise<ServiceResult> {
  if (plan.failure !== undefined) return { exists: false, status: plan.status, error: new Error(plan.failure) };
  try {
    if (plan.action !== undefined) await applyServiceAction(context, sandbox, plan.action, signal);
    return { exists: plan.status === "set", status: plan.status };
  } catch (error) {
    if (isReasonOf(error, "AlreadyExists")) return settleExistingService(context, sandbox, signal);
    return { exists: false, status: "keep", error: asError(error, signal) };
  }
}

async function settleExistingService(
  context: SandboxContext,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<ServiceResult> {
  const wanted = { metadata: { name: sandbox.metadata.name, namespace: sandbox.metadata.namespace ?? "" } };
  const found = await readLive(context, services, context.caches.services, wanted, signal);
  const plan = planService(sandbox, found);
  if (plan.action?.do === "create-service") {
    return { exists: false, status: "keep", error: new Error(`service get failed: "${wanted.metadata.name}" is gone`) };
  }
  return applyService(context, sandbox, plan, signal);
}

async function applyServiceAction(
  { client, caches }: SandboxContext,
  sandbox: Sandbox,
  action: ServiceAction,
  signal: AbortSignal,
): Promise<void> {
  const key = { namespace: sandbox.metadata.namespace ?? "", name: sandbox.metadata.name };
  const wrote = (service: Service): void => void caches.services.wrote(service);
  switch (action.do) {
    case "create-service":
      return wrote(await client.create(services, action.service, { fieldManager: sandboxFieldManager, signal }));
    case "adopt-service":
      return wrote(
        await client
          .update(services, action.service, { signal })
          .catch(rethrow("failed to update service with owner reference")),
      );
    case "patch-service":
      return wrote(
        await client
          .patch(services, key, { type: "merge", body: action.body }, { signal })
          .catch(rethrow("failed to patch owned service")),
      );
    case "delete-service":
      await client
        .delete(services, key, { uid: action.uid, signal })
        .catch(ignore("NotFound"))
        .catch(rethrow("failed to delete service"));
      return;
  }
}

/** Reads past the cache and remembers the answer. */
export async function readLive<T extends KubeObject>(
  { client }: SandboxContext,
  resource: Resource<T>,
  mirror: Mirror<T>,
  wanted: { metadata: { name: string; namespace?: string } },
  signal: AbortSignal,
): Promise<T | undefined> {
  const { name, namespace = "" } = wanted.metadata;
  const found = await client.get(resource, { namespace, name }, { signal }).catch(ignore("NotFound"));
  if (found !== undefined) return mirror.wrote(found);
  mirror.forget(keyOf(wanted));
  return undefined;
}

/** Adds what was being done to an API error, keeping its reason so that conflicts stay conflicts. */
export function rethrow(doing: string): (error: unknown) => never {
  return (error) => {
    const message = `${doing}: ${errorText(error)}`;
    if (error instanceof ApiError) throw new ApiError(error.reason, message, { status: error.status, cause: error });
    throw new Error(message, { cause: error });
  };
}

/** Cancellation is not an error of a step: it ends the pass. */
export function asError(error: unknown, signal: AbortSignal): Error {
  if (signal.aborted) throw signal.reason;
  return error instanceof Error ? error : new Error(String(error));
}
