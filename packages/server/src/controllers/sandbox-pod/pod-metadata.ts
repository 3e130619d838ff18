import type { ObjectMeta, Sandbox } from "@agent-sandbox/api";
import {
  annotationKeys,
  controllerOf,
  extensionsGroup,
  isReservedAnnotation,
  isReservedLabel,
  labelKeys,
  nameHash,
  normalizeCreator,
  parseApiVersion,
  refersTo,
  sandboxWarmPools,
} from "@agent-sandbox/api";

/** A merge patch of labels and annotations; null removes a key. */
export interface MetadataPatch {
  labels?: Record<string, string | null>;
  annotations?: Record<string, string | null>;
}

/** Keys the pod template gives to the Pod: reserved keys are the controllers' own and never copied. */
export interface PropagatedMetadata {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** What of `spec.podTemplate.metadata` reaches the Pod. */
export function templateMetadata(sandbox: Sandbox): PropagatedMetadata {
  const metadata = sandbox.spec.podTemplate.metadata;
  const dropped = droppedPoolDefaults(sandbox);
  return {
    labels: keep(metadata?.labels, (key) => !isReservedLabel(key)),
    annotations: keep(metadata?.annotations, (key) => !isReservedAnnotation(key) && !dropped.has(key)),
  };
}

/** What reaches the Pod: that, and the services that are declared on the Sandbox itself. */
function propagatedMetadata(sandbox: Sandbox): PropagatedMetadata {
  const { labels, annotations } = templateMetadata(sandbox);
  const services = keep(sandbox.metadata.annotations, (key) => key === annotationKeys.services);
  return { labels, annotations: { ...annotations, ...services } };
}

/** A pool's default annotations end with the pool's ownership; the template's own values have no such mark. */
function droppedPoolDefaults(sandbox: Sandbox): ReadonlySet<string> {
  const marked = sandbox.metadata.annotations?.[annotationKeys.poolDefaultAnnotations];
  if (marked === undefined || marked === "") return new Set();
  const owner = controllerOf(sandbox);
  return refersTo(owner, sandboxWarmPools) ? new Set() : new Set(marked.split(","));
}

function keep(values: Record<string, string> | undefined, wanted: (key: string) => boolean): Record<string, string> {
  return Object.fromEntries(Object.entries(values ?? {}).filter(([key]) => wanted(key)));
}

/** Labels that the Sandbox's extension owner and creator give to the Pod; undefined means the Pod must not have it. */
function systemLabels(sandbox: Sandbox): Readonly<Record<string, string | undefined>> {
  const labels = sandbox.metadata.labels ?? {};
  const owner = controllerOf(sandbox);
  const extension = owner !== undefined && parseApiVersion(owner.apiVersion).group === extensionsGroup;
  const creator = labels[labelKeys.createdBy];
  return {
    [labelKeys.warmPoolSandbox]:
      extension && owner.kind === "SandboxWarmPool" ? nonEmpty(labels[labelKeys.warmPoolSandbox]) : undefined,
    // A fork of what was made from a template is under that template's network policy too.
    [labelKeys.templateRefHash]:
      extension || sandbox.spec.restoreFrom !== undefined ? nonEmpty(labels[labelKeys.templateRefHash]) : undefined,
    [labelKeys.claimUid]: extension && owner.kind === "SandboxClaim" ? nonEmpty(labels[labelKeys.claimUid]) : undefined,
    [labelKeys.createdBy]: nonEmpty(creator) === undefined ? undefined : normalizeCreator(creator),
  };
}

function nonEmpty(value: string | undefined): string | undefined {
  return value === undefined || value === "" ? undefined : value;
}

/** Metadata of a Pod about to be created. */
export function newPodMetadata(sandbox: Sandbox): {
  labels: Record<string, string>;
  annotations: Record<string, string>;
} {
  const propagated = propagatedMetadata(sandbox);
  const labels: Record<string, string> = {
    ...propagated.labels,
    [labelKeys.sandboxNameHash]: nameHash(sandbox.metadata.name),
  };
  for (const [key, value] of Object.entries(systemLabels(sandbox))) if (value !== undefined) labels[key] = value;
  const annotations: Record<string, string> = { ...propagated.annotations };
  const copiedLabels = joinedKeys(propagated.labels);
  const copiedAnnotations = joinedKeys(propagated.annotations);
  if (copiedLabels !== "") annotations[annotationKeys.propagatedLabels] = copiedLabels;
  if (copiedAnnotations !== "") annotations[annotationKeys.propagatedAnnotations] = copiedAnnotations;
  return { labels, annotations };
}

/** The smallest patch that brings an existing Pod's metadata in line, or undefined when nothing differs. */
export function planPodMetadata(pod: { metadata: ObjectMeta }, sandbox: Sandbox): MetadataPatch | undefined {
  const propagated = propagatedMetadata(sandbox);
  const labels = labelChanges(pod.metadata, sandbox, propagated.labels);
  const annotations = annotationChanges(pod.metadata, propagated);
  if (Object.keys(labels).length === 0 && Object.keys(annotations).length === 0) return undefined;
  return {
    ...(Object.keys(labels).length > 0 ? { labels } : {}),
    ...(Object.keys(annotations).length > 0 ? { annotations } : {}),
  };
}

function labelChanges(
  metadata: ObjectMeta,
  sandbox: Sandbox,
  wanted: Readonly<Record<string, string>>,
): Record<string, string | null> {
  const present = metadata.labels ?? {};
  const changes: Record<string, string | null> = {};
  const set = (key: string, value: string | undefined): void => {
    if (value === undefined ? present[key] !== undefined : present[key] !== value) changes[key] = value ?? null;
  };
  set(labelKeys.sandboxNameHash, nameHash(sandbox.metadata.name));
  for (const [key, value] of Object.entries(wanted)) set(key, value);
  for (const key of listedKeys(metadata.annotations?.[annotationKeys.propagatedLabels])) {
    // A reserved key in the list was leaked by a controller that did not filter; the tracking label is ours.
    if (isReservedLabel(key) ? key !== labelKeys.sandboxNameHash : wanted[key] === undefined) set(key, undefined);
  }
  for (const [key, value] of Object.entries(systemLabels(sandbox))) {
    if (value === undefined) {
      set(key, undefined);
    } else {
      delete changes[key];
      set(key, value);
    }
  }
  return changes;
}

function annotationChanges(metadata: ObjectMeta, propagated: PropagatedMetadata): Record<string, string | null> {
  const present = metadata.annotations ?? {};
  const wanted = propagated.annotations;
  const changes: Record<string, string | null> = {};
  for (const [key, value] of Object.entries(wanted)) if (present[key] !== value) changes[key] = value;
  for (const key of listedKeys(present[annotationKeys.propagatedAnnotations])) {
    if (key === annotationKeys.propagatedLabels || key === annotationKeys.propagatedAnnotations) continue;
    if (wanted[key] === undefined && present[key] !== undefined) changes[key] = null;
  }
  setList(annotationKeys.propagatedLabels, joinedKeys(propagated.labels), present, changes);
  setList(annotationKeys.propagatedAnnotations, joinedKeys(wanted), present, changes);
  return changes;
}

/** A missing list counts as empty: it is not added for no keys, but a list that becomes empty says so. */
function setList(
  key: string,
  value: string,
  present: Readonly<Record<string, string>>,
  changes: Record<string, string | null>,
): void {
  if ((present[key] ?? "") !== value) changes[key] = value;
}

function joinedKeys(values: Readonly<Record<string, string>>): string {
  return Object.keys(values).sort().join(",");
}

function listedKeys(value: string | undefined): string[] {
  return (value ?? "").split(",").filter((key) => key !== "");
}
