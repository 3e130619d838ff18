import {
  badRequest,
  dns1035LabelProblems,
  dnsLabelProblems,
  dnsSubdomainProblems,
  isJsonObject,
  type JsonObject,
  type KubeObject,
  labelValueProblems,
  type OwnerReference,
  qualifiedNameProblems,
} from "@agent-sandbox/api";
import { type FieldError, invalid, required, tooLong } from "./field-error.ts";

/** The rules an object's name may have to follow. */
export type NameRule = "subdomain" | "label" | "label1035" | "path-segment";

const annotationsMaxBytes = 256 * 1024;

/** What is wrong with a name, in Kubernetes' words; empty when nothing is. */
function nameProblems(name: string, rule: NameRule): string[] {
  switch (rule) {
    case "subdomain":
      return dnsSubdomainProblems(name);
    case "label":
      return dnsLabelProblems(name);
    case "label1035":
      return dns1035LabelProblems(name);
    case "path-segment":
      if (name === "." || name === "..") return [`may not be '${name}'`];
      return ["/", "%"].filter((bad) => name.includes(bad)).map((bad) => `may not contain '${bad}'`);
    default:
      return rule satisfies never;
  }
}

/** All problems of an object's metadata. */
export function validateMetadata(object: KubeObject, rule: NameRule): FieldError[] {
  const { name, generateName, labels, annotations } = object.metadata;
  const errors: FieldError[] = [];
  if (name === undefined || name === "") errors.push(required("metadata.name", "name or generateName is required"));
  else for (const problem of nameProblems(name, rule)) errors.push(invalid("metadata.name", name, problem));
  if (generateName !== undefined && generateName !== "") {
    const stem = generateName.replace(/[-.]$/, "a");
    for (const problem of nameProblems(stem, rule))
      errors.push(invalid("metadata.generateName", generateName, problem));
  }
  errors.push(...validateLabels(labels, "metadata.labels"), ...validateAnnotations(annotations));
  return [...errors, ...validateOwners(object), ...validateFinalizers(object)];
}

/** All problems of a label map. */
function validateLabels(labels: Readonly<Record<string, string>> | undefined, path: string): FieldError[] {
  const errors: FieldError[] = [];
  for (const [key, value] of Object.entries(labels ?? {})) {
    for (const problem of qualifiedNameProblems(key)) errors.push(invalid(path, key, problem));
    for (const problem of labelValueProblems(value)) errors.push(invalid(path, value, problem));
  }
  return errors;
}

function validateAnnotations(annotations: Readonly<Record<string, string>> | undefined): FieldError[] {
  const errors: FieldError[] = [];
  let bytes = 0;
  for (const [key, value] of Object.entries(annotations ?? {})) {
    for (const problem of qualifiedNameProblems(key.toLowerCase()))
      errors.push(invalid("metadata.annotations", key, problem));
    bytes += key.length + Buffer.byteLength(value);
  }
  if (bytes > annotationsMaxBytes) errors.push(tooLong("metadata.annotations", annotationsMaxBytes));
  return errors;
}

function validateOwners({ metadata }: KubeObject): FieldError[] {
  const errors: FieldError[] = [];
  const owners = metadata.ownerReferences ?? [];
  for (const owner of owners) {
    for (const field of ["apiVersion", "kind", "name", "uid"] as const) {
      const problem = field === "apiVersion" ? "version must not be empty" : "must not be empty";
      if (!owner[field]) errors.push(invalid(`metadata.ownerReferences.${field}`, owner[field] ?? "", problem));
    }
  }
  const [first, ...others] = owners.filter((owner) => owner.controller === true);
  for (const other of others) {
    const names = `${first?.kind ?? ""}/${first?.name ?? ""} and ${other.kind}/${other.name}`;
    const problem = `Only one reference can have Controller set to true. Found "true" in references for ${names}`;
    errors.push(invalid("metadata.ownerReferences", owners.map(asPrinted), problem));
  }
  return errors;
}

/** An owner with its fields in the order in which Kubernetes prints them. */
function asPrinted(owner: OwnerReference): JsonObject {
  const { apiVersion, kind, name, uid, controller, blockOwnerDeletion } = owner;
  return {
    apiVersion,
    kind,
    name,
    uid,
    ...(controller !== undefined && { controller }),
    ...(blockOwnerDeletion !== undefined && { blockOwnerDeletion }),
  };
}

/** Finalizers that Kubernetes itself knows; any other of a core kind needs a domain. */
const standardFinalizers = ["kubernetes", "orphan", "foregroundDeletion"];

function validateFinalizers({ metadata, apiVersion }: KubeObject): FieldError[] {
  const finalizers = metadata.finalizers ?? [];
  const errors = finalizers.flatMap((finalizer) =>
    qualifiedNameProblems(finalizer).map((problem) => invalid("metadata.finalizers", finalizer, problem)),
  );
  if (finalizers.includes("orphan") && finalizers.includes("foregroundDeletion")) {
    const problem = "finalizer orphan and foregroundDeletion cannot be both set";
    errors.push(invalid("metadata.finalizers", [...finalizers], problem));
  }
  if (apiVersion !== "v1") return errors;
  for (const [index, finalizer] of finalizers.entries()) {
    if (finalizer.includes("/") || standardFinalizers.includes(finalizer)) continue;
    const problem = "name is neither a standard finalizer name nor is it fully qualified";
    errors.push(invalid(`metadata.finalizers[${index}]`, finalizer, problem));
  }
  return errors;
}

/** Checks that `metadata` has the types it must have, whatever the kind; throws BadRequest. */
export function assertMetadataShape(body: JsonObject): void {
  const metadata = body["metadata"];
  if (metadata === undefined || metadata === null) {
    body["metadata"] = {};
    return;
  }
  if (!isJsonObject(metadata)) throw badRequest("json: cannot unmarshal metadata into Go value of type v1.ObjectMeta");
}
