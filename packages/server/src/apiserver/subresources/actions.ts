import {
  asJson,
  asObject,
  badRequest,
  conflict,
  isJsonObject,
  type JsonObject,
  type KubeObject,
  methodNotAllowed,
  notFound,
  serviceUnavailable,
} from "@agent-sandbox/api";
import { formatTime } from "../json/format-time.ts";
import { cloneJson, listAt, numberAt, objectAt, stringAt } from "../json/json.ts";
import { answerValue } from "../request/answer.ts";
import type { ApiResponse } from "../request/api-request.ts";
import { readBody } from "../request/read-body.ts";
import { type RequestScope, subjectOf } from "../scope/scope.ts";
import { admit } from "../verbs/admission-chain.ts";
import { deleteObject } from "../verbs/delete.ts";
import { updateObject } from "../verbs/update.ts";

const success = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success", code: 201 };

function bodyObject(scope: RequestScope): JsonObject {
  const { value } = readBody(scope.request);
  if (!isJsonObject(value)) throw badRequest("the body must be an object");
  return value;
}

/** POST pods/binding: gives a pod its node, once. */
export async function bindingSubresource(scope: RequestScope, verb: string): Promise<ApiResponse> {
  if (verb !== "create") throw methodNotAllowed(verb, scope.definition);
  const binding = bodyObject(scope);
  const node = stringAt(objectAt(binding, "target"), "name") ?? "";
  if (node === "") throw badRequest("target.name: Required value");
  const metadata = objectAt(binding, "metadata");
  await updateObject(scope, {
    isBlind: true,
    next: (live) => boundPod(scope, { live, node, metadata }),
  });
  return answerValue(201, success);
}

interface Bind {
  readonly live: KubeObject;
  readonly node: string;
  readonly metadata: JsonObject | undefined;
}

function boundPod(scope: RequestScope, { live, node, metadata }: Bind): KubeObject {
  const uid = stringAt(metadata, "uid");
  if (uid !== undefined && uid !== live.metadata.uid) {
    throw conflict(
      subjectOf(scope),
      `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${live.metadata.uid ?? ""}`,
    );
  }
  if (live.metadata.deletionTimestamp !== undefined)
    throw conflict(bindingOf(scope), `pod ${scope.name} is being deleted, cannot be assigned to a host`);
  const present = stringAt(objectAt(asJson(live), "spec"), "nodeName") ?? "";
  if (present !== "")
    throw conflict(bindingOf(scope), `pod ${scope.name} is already assigned to node ${JSON.stringify(present)}`);
  const pod = asObject(cloneJson(asJson(live)));
  asJson(pod)["spec"] = { ...objectAt(asJson(pod), "spec"), nodeName: node };
  asJson(pod)["status"] = scheduledStatus(scope, objectAt(asJson(pod), "status") ?? {});
  const annotations = objectAt(metadata, "annotations") as Record<string, string> | undefined;
  if (annotations !== undefined) pod.metadata.annotations = { ...pod.metadata.annotations, ...annotations };
  return pod;
}

function bindingOf(scope: RequestScope): { group: string; resource: string; name: string } {
  return { ...subjectOf(scope), resource: "pods/binding" };
}

function scheduledStatus(scope: RequestScope, status: JsonObject): JsonObject {
  const others = listAt(status, "conditions").filter(
    (item) => !(isJsonObject(item) && item["type"] === "PodScheduled"),
  );
  const scheduled = {
    type: "PodScheduled",
    status: "True",
    lastProbeTime: null,
    lastTransitionTime: formatTime(scope.nowMs),
  };
  return { ...status, conditions: [...others, scheduled] };
}

/** POST pods/eviction: a delete that rules may refuse. */
export async function evictionSubresource(scope: RequestScope, verb: string): Promise<ApiResponse> {
  if (verb !== "create") throw methodNotAllowed(verb, scope.definition);
  const eviction = bodyObject(scope);
  const name = stringAt(objectAt(eviction, "metadata"), "name") ?? scope.name;
  if (name !== scope.name) throw badRequest("name in URL does not match name in Eviction object");
  const options = objectAt(eviction, "deleteOptions");
  const grace = numberAt(options, "gracePeriodSeconds");
  const uid = stringAt(objectAt(options, "preconditions"), "uid");
  const dryRun = scope.dryRun || listAt(options, "dryRun").includes("All");
  await deleteObject(scope, {
    dryRun,
    ...(grace === undefined ? {} : { gracePeriodSeconds: grace }),
    ...(uid === undefined ? {} : { uid }),
  });
  return answerValue(201, success);
}

/** Older clients write what they do not ask for as null. */
function withoutNulls(spec: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(spec).filter(([, value]) => value !== null && value !== undefined));
}

/** POST serviceaccounts/token: a bound, expiring token. */
export async function tokenSubresource(scope: RequestScope, verb: string): Promise<ApiResponse> {
  if (verb !== "create") throw methodNotAllowed(verb, scope.definition);
  const issuer = scope.server.tokenIssuer;
  if (issuer === undefined) throw serviceUnavailable("this server issues no tokens");
  const request = bodyObject(scope);
  const account = scope.server.storage.get(scope.definition, scope);
  if (account === undefined) throw notFound(subjectOf(scope));
  // The rules judge the request: whose token, bound to what.
  const object = asObject({ ...request, metadata: { name: scope.name, namespace: scope.namespace } });
  await admit(scope, { verb: "create", object, oldObject: account.object }).validate();
  const issued = await issuer.issue(account.object as never, withoutNulls(objectAt(request, "spec") ?? {}) as never);
  const { token, expirationTimestamp, spec } = issued;
  return answerValue(201, {
    kind: "TokenRequest",
    apiVersion: "authentication.k8s.io/v1",
    metadata: { name: scope.name, namespace: scope.namespace, creationTimestamp: formatTime(scope.nowMs) },
    spec,
    status: { token, expirationTimestamp },
  });
}
