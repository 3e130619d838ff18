import { badRequest } from "./api-error.ts";
import { claimToV1alpha1, claimToV1beta1 } from "./conversion-claim.ts";
import { sandboxToV1alpha1, sandboxToV1beta1 } from "./conversion-sandbox.ts";
import { templateToV1alpha1, templateToV1beta1 } from "./conversion-template.ts";
import { warmPoolToV1alpha1, warmPoolToV1beta1 } from "./conversion-warm-pool.ts";
import type {
  Sandbox,
  SandboxClaim,
  SandboxClaimV1alpha1,
  SandboxTemplate,
  SandboxTemplateV1alpha1,
  SandboxV1alpha1,
  SandboxWarmPool,
  SandboxWarmPoolV1alpha1,
} from "./kinds.gen.ts";
import { coreGroup, extensionsGroup } from "./labels.ts";
import type { KubeObject } from "./meta.ts";
import { parseApiVersion } from "./resource.ts";

/** Our kinds in the version that is stored. */
type HubObject = Sandbox | SandboxTemplate | SandboxClaim | SandboxWarmPool;
/** Our kinds in the deprecated version. */
type SpokeObject = SandboxV1alpha1 | SandboxTemplateV1alpha1 | SandboxClaimV1alpha1 | SandboxWarmPoolV1alpha1;

/** The stored form of a v1alpha1 object; the source is not touched. */
function toV1beta1(source: SpokeObject): HubObject {
  switch (source.kind) {
    case "Sandbox":
      return sandboxToV1beta1(source);
    case "SandboxTemplate":
      return templateToV1beta1(source);
    case "SandboxClaim":
      return claimToV1beta1(source);
    case "SandboxWarmPool":
      return warmPoolToV1beta1(source);
    default:
      return source satisfies never;
  }
}

/** The v1alpha1 view of a stored object; the source is not touched. */
function toV1alpha1(source: HubObject): SpokeObject {
  switch (source.kind) {
    case "Sandbox":
      return sandboxToV1alpha1(source);
    case "SandboxTemplate":
      return templateToV1alpha1(source);
    case "SandboxClaim":
      return claimToV1alpha1(source);
    case "SandboxWarmPool":
      return warmPoolToV1alpha1(source);
    default:
      return source satisfies never;
  }
}

const groupOfKind: Record<string, string> = {
  Sandbox: coreGroup,
  SandboxTemplate: extensionsGroup,
  SandboxClaim: extensionsGroup,
  SandboxWarmPool: extensionsGroup,
};

/** Converts an object of ours to the wanted apiVersion, as a conversion webhook is asked to; throws BadRequest for anything else. */
export function convertObject(source: KubeObject, desiredApiVersion: string): KubeObject {
  const { group, version } = parseApiVersion(source.apiVersion);
  const desired = parseApiVersion(desiredApiVersion);
  const known = Object.hasOwn(groupOfKind, source.kind) ? groupOfKind[source.kind] : undefined;
  if (known === undefined || known !== group || desired.group !== group) {
    throw badRequest(`${source.kind} of ${source.apiVersion} cannot be converted to ${desiredApiVersion}`);
  }
  if (version === desired.version) throw badRequest(`${source.kind} is of ${desiredApiVersion} already`);
  if (version === "v1alpha1" && desired.version === "v1beta1") return toV1beta1(source as SpokeObject);
  if (version === "v1beta1" && desired.version === "v1alpha1") return toV1alpha1(source as HubObject);
  throw badRequest(
    `${source.kind} has no version ${version === "v1beta1" || version === "v1alpha1" ? desired.version : version}`,
  );
}
