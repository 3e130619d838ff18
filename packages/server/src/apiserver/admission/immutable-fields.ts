import { isDeepStrictEqual } from "node:util";
import {
  asJson,
  invalid,
  type KubeObject,
  type PersistentVolumeClaim,
  parseQuantity,
  type Service,
} from "@agent-sandbox/api";
import type { Admission, AdmissionAttributes } from "./admission.ts";

interface Fault {
  readonly reason: string;
  readonly message: string;
  readonly field: string;
}

type Comparison = (after: never, before: never) => Fault[];

/** Refuses changes that Kubernetes refuses and that the strategies of the kinds leave to admission. Fields that clients may leave out on update are taken over before that. */
export class ImmutableFields implements Admission {
  readonly name = "ImmutableFields";

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    return verb === "update" && subresource === "" && comparisons.has(`${group}/${resource}`);
  }

  mutate({ group, resource, object, oldObject }: AdmissionAttributes): void {
    if (group === "" && resource === "services") keepClusterIp(object as Service, oldObject as Service);
    if (group === "" && resource === "persistentvolumeclaims")
      keepVolumeName(object as PersistentVolumeClaim, oldObject as PersistentVolumeClaim);
  }

  validate({ group, resource, name, object, oldObject }: AdmissionAttributes): void {
    if (object === undefined || oldObject === undefined) return;
    const faults = comparisons.get(`${group}/${resource}`)?.(object as never, oldObject as never) ?? [];
    if (faults.length > 0) throw invalid({ group, kind: object.kind, name }, [...faults]);
  }
}

const comparisons: ReadonlyMap<string, Comparison> = new Map<string, Comparison>([
  ["/services", compareServices],
  ["/persistentvolumeclaims", compareClaims],
  [
    "/persistentvolumes",
    fixed(
      "spec.persistentvolumesource",
      (object) => volumeSource(object),
      "Forbidden: spec.persistentvolumesource is immutable after creation",
    ),
  ],
  ["node.k8s.io/runtimeclasses", fixed("handler")],
  ["discovery.k8s.io/endpointslices", fixed("addressType")],
  ["scheduling.k8s.io/priorityclasses", fixed("value", undefined, "Forbidden: may not be changed in an update.")],
  ["storage.k8s.io/storageclasses", compareStorageClasses],
]);

function fixed(
  field: string,
  read?: (object: KubeObject) => unknown,
  message?: string,
  why = "field is immutable",
): Comparison {
  const value = read ?? ((object: KubeObject) => asJson(object)[field]);
  return (after: KubeObject, before: KubeObject) => {
    if (isDeepStrictEqual(value(after), value(before))) return [];
    const reason = message?.startsWith("Forbidden") === true ? "FieldValueForbidden" : "FieldValueInvalid";
    return [{ reason, message: message ?? `Invalid value: ${JSON.stringify(value(after))}: ${why}`, field }];
  };
}

function forbiddenFault(field: string, why: string): Fault {
  return { reason: "FieldValueForbidden", message: `Forbidden: ${why}`, field };
}

function keepClusterIp(after: Service, before: Service): void {
  if (after.spec === undefined || before.spec?.clusterIP === undefined || after.spec.type === "ExternalName") return;
  if (after.spec.clusterIP === undefined || after.spec.clusterIP === "") after.spec.clusterIP = before.spec.clusterIP;
  if (after.spec.clusterIPs === undefined && before.spec.clusterIPs !== undefined)
    after.spec.clusterIPs = [...before.spec.clusterIPs];
}

function compareServices(after: Service, before: Service): Fault[] {
  if (
    before.spec?.clusterIP === undefined ||
    before.spec.clusterIP === "" ||
    after.spec?.type === "ExternalName" ||
    before.spec.type === "ExternalName"
  )
    return [];
  if (after.spec?.clusterIP === before.spec.clusterIP) return [];
  const value = JSON.stringify(after.spec?.clusterIPs ?? [after.spec?.clusterIP]);
  return [
    {
      reason: "FieldValueInvalid",
      message: `Invalid value: ${value}: may not change once set`,
      field: "spec.clusterIPs[0]",
    },
  ];
}

function keepVolumeName(after: PersistentVolumeClaim, before: PersistentVolumeClaim): void {
  if (after.spec !== undefined && after.spec.volumeName === undefined && before.spec?.volumeName !== undefined)
    after.spec.volumeName = before.spec.volumeName;
}

function compareClaims(after: PersistentVolumeClaim, before: PersistentVolumeClaim): Fault[] {
  const storage = ({ spec }: PersistentVolumeClaim) => parseQuantity(spec?.resources?.requests?.["storage"] ?? "0");
  const rest = ({ spec }: PersistentVolumeClaim) => {
    const { resources, volumeName, volumeAttributesClassName: _class, ...other } = spec ?? {};
    // A binder may fill in the volume once; after that it stays.
    const volume = before.spec?.volumeName === undefined ? undefined : volumeName;
    return { ...other, limits: resources?.limits, volume };
  };
  if (!isDeepStrictEqual(rest(after), rest(before))) {
    return [
      forbiddenFault(
        "spec",
        "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
      ),
    ];
  }
  const change = storage(after).compare(storage(before));
  if (change > 0 && before.status?.phase !== "Bound") {
    return [
      forbiddenFault(
        "spec",
        "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
      ),
    ];
  }
  return change < 0
    ? [forbiddenFault("spec.resources.requests.storage", "field can not be less than status.capacity")]
    : [];
}

function compareStorageClasses(after: KubeObject, before: KubeObject): Fault[] {
  return (["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] as const).flatMap((field) =>
    fixed(field, undefined, `Forbidden: updates to ${field} are forbidden.`)(after as never, before as never),
  );
}

function volumeSource(object: KubeObject): unknown {
  const general = new Set([
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
  ]);
  const spec = (object as KubeObject & { spec?: Record<string, unknown> }).spec ?? {};
  return Object.fromEntries(Object.entries(spec).filter(([key]) => !general.has(key)));
}
