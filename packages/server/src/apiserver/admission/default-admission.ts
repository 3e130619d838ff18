import type { ObjectReader, StatusWriter } from "../auth/object-reader.ts";
import type { RbacAuthorizer } from "../auth/rbac-authorizer.ts";
import type { AddressAllocation } from "./address-allocation.ts";
import type { Admission } from "./admission.ts";
import { ArchivePermission } from "./archive-permission.ts";
import { DefaultStorageClass } from "./default-storage-class.ts";
import { DefaultTolerations } from "./default-tolerations.ts";
import { ImmutableFields } from "./immutable-fields.ts";
import { LimitRanger } from "./limit-ranger.ts";
import { NamespaceLifecycle } from "./namespace-lifecycle.ts";
import { NodeRestriction } from "./node-restriction.ts";
import { type OwnerKinds, OwnerReferencesPermission } from "./owner-references.ts";
import { PodSecurity } from "./pod-security.ts";
import { Priority } from "./priority.ts";
import { RbacEscalation } from "./rbac-escalation.ts";
import { ReservedMetadata } from "./reserved-metadata.ts";
import { ResourceQuotaAdmission } from "./resource-quota.ts";
import { RestoreFromPermission } from "./restore-from.ts";
import { RuntimeClassAdmission } from "./runtime-class.ts";
import { SandboxUsePermission } from "./sandbox-use.ts";
import { ServiceAccountAdmission } from "./service-account.ts";
import { StorageProtection } from "./storage-protection.ts";

/** What the rules read, write and ask. */
export interface AdmissionParts {
  readonly reader: ObjectReader;
  readonly writer: StatusWriter;
  readonly authorizer: RbacAuthorizer;
  readonly ownerKinds: OwnerKinds;
  /** Follows the store already; absent where another party gives addresses. */
  readonly addresses?: AddressAllocation;
  /** In [0, 1), for generated volume names. */
  readonly random: () => number;
}

/** Every rule in the order of Kubernetes: quota last, because it books what all others let through. */
export function defaultAdmission(parts: AdmissionParts): Admission[] {
  const { reader, writer, authorizer, ownerKinds, random, addresses } = parts;
  return [
    new NamespaceLifecycle(reader),
    new ReservedMetadata(),
    new LimitRanger(reader),
    new ServiceAccountAdmission(reader, random),
    new NodeRestriction(reader),
    new Priority(reader),
    new DefaultTolerations(),
    new DefaultStorageClass(reader),
    new RuntimeClassAdmission(reader),
    new StorageProtection(),
    new ImmutableFields(),
    ...(addresses === undefined ? [] : [addresses]),
    new RbacEscalation(authorizer),
    new OwnerReferencesPermission({ authorizer, reader, ownerKinds }),
    new SandboxUsePermission(authorizer),
    new RestoreFromPermission(authorizer),
    new ArchivePermission(authorizer),
    new PodSecurity(reader),
    new ResourceQuotaAdmission(reader, writer),
  ];
}
