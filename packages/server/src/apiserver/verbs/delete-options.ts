import { badRequest, isJsonObject } from "@agent-sandbox/api";
import { numberAt, objectAt, stringAt } from "../json/json.ts";
import { readBody } from "../request/read-body.ts";
import { invalid, invalidOptions, notSupported } from "../schema/field-error.ts";
import type { RequestScope } from "../scope/scope.ts";

/** What a DELETE may ask for. */
export interface DeleteOptions {
  readonly gracePeriodSeconds?: number;
  readonly propagationPolicy?: "Orphan" | "Background" | "Foreground";
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly dryRun: boolean;
}

/** Reads DeleteOptions from the body, or from the query where the body is empty. */
export function readDeleteOptions(scope: RequestScope): DeleteOptions {
  const body = scope.request.body ?? "";
  const hasBody = body.length > 0;
  const value = hasBody ? readBody(scope.request).value : {};
  if (!isJsonObject(value)) throw badRequest("the body of a delete must be DeleteOptions");
  const query = scope.query;
  const asked = numberAt(value, "gracePeriodSeconds") ?? numberFrom(query.get("gracePeriodSeconds"));
  // A negative time means the shortest one, as in Kubernetes.
  const grace = asked !== undefined && asked < 0 ? 1 : asked;
  const policy = policyOf(stringAt(value, "propagationPolicy") ?? query.get("propagationPolicy") ?? undefined);
  const orphan = value["orphanDependents"] ?? query.get("orphanDependents") === "true";
  const preconditions = objectAt(value, "preconditions");
  const uid = stringAt(preconditions, "uid");
  const resourceVersion = stringAt(preconditions, "resourceVersion");
  if (policy !== undefined && orphan === true) {
    throw invalidOptions("DeleteOptions", [
      invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"),
    ]);
  }
  const propagationPolicy = policy ?? (orphan === true ? "Orphan" : undefined);
  const dryRun = scope.dryRun || (Array.isArray(value["dryRun"]) && value["dryRun"].includes("All"));
  return {
    dryRun,
    ...(grace === undefined ? {} : { gracePeriodSeconds: grace }),
    ...(propagationPolicy === undefined ? {} : { propagationPolicy }),
    ...(uid === undefined ? {} : { uid }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
  };
}

function numberFrom(text: string | null): number | undefined {
  if (text === null || text === "") return undefined;
  if (!/^-?\d{1,10}$/.test(text)) throw badRequest(`invalid gracePeriodSeconds ${JSON.stringify(text)}`);
  return Number(text);
}

function policyOf(text: string | undefined): DeleteOptions["propagationPolicy"] {
  if (text === undefined || text === "") return undefined;
  if (text === "Orphan" || text === "Background" || text === "Foreground") return text;
  throw invalidOptions("DeleteOptions", [
    notSupported("propagationPolicy", text, ["Foreground", "Background", "Orphan", "nil"]),
  ]);
}
