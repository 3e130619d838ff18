import {
  coreEvents,
  type Event,
  type EventsEvent,
  events,
  formatMicroTime,
  formatTimestamp,
  type KubeObject,
  type Resource,
} from "@agent-sandbox/api";

/** Something worth telling the user of an object. */
export interface EventNote {
  readonly regarding: KubeObject;
  readonly related?: KubeObject;
  readonly type: "Normal" | "Warning";
  /** In CamelCase, of a closed set. */
  readonly reason: string;
  /** What was done or tried, in CamelCase. */
  readonly action: string;
  readonly note: string;
  /** The part of the object it is about, for example `spec.containers{main}`. */
  readonly fieldPath?: string;
}

/** Who reports. */
export interface EventReporter {
  /** For example `agent-sandbox.dev/sandbox-controller`. */
  readonly reportingController: string;
  /** For example the pod's or the host's name. */
  readonly reportingInstance: string;
}

/** How notes become objects of one of the two APIs that events have. */
export interface EventForm {
  readonly resource: Resource<KubeObject>;
  /** Notes with the same key are repetitions of each other. */
  readonly keyOf: (note: EventNote) => string;
  readonly eventOf: (
    note: EventNote,
    by: EventReporter & { readonly name: string; readonly nowMs: number },
  ) => KubeObject;
  /** The merge patch that tells of repetitions. */
  readonly countOf: (count: number, lastMs: number) => object;
}

/** The longest note that servers take. */
const noteMax = 1_024;

/** Events of `events.k8s.io/v1`, for everybody but nodes. */
export const eventsForm: EventForm = {
  resource: events,
  // The note does not count: it often carries what changes between repetitions.
  keyOf: (note) => keyOf(note, note.action),
  eventOf: (note, { name, nowMs, ...reporter }): EventsEvent => ({
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name, namespace: note.regarding.metadata.namespace ?? "default" },
    eventTime: formatMicroTime(nowMs),
    type: note.type,
    reason: note.reason,
    action: note.action,
    note: shorten(note.note),
    regarding: referenceTo(note.regarding, note.fieldPath),
    ...(note.related !== undefined && { related: referenceTo(note.related) }),
    ...reporter,
  }),
  countOf: (count, lastMs) => ({ series: { count, lastObservedTime: formatMicroTime(lastMs) } }),
};

/** Events of the core API as the kubelet writes them: the one form that nodes may write on a cluster. */
export const coreForm: EventForm = {
  resource: coreEvents,
  keyOf: (note) => keyOf(note, note.note),
  eventOf: (note, { name, nowMs, reportingController, reportingInstance }): Event => ({
    apiVersion: "v1",
    kind: "Event",
    metadata: { name, namespace: note.regarding.metadata.namespace ?? "default" },
    involvedObject: referenceTo(note.regarding, note.fieldPath),
    type: note.type,
    reason: note.reason,
    message: shorten(note.note),
    source: { component: reportingController, host: reportingInstance },
    reportingComponent: reportingController,
    reportingInstance,
    firstTimestamp: formatTimestamp(nowMs),
    lastTimestamp: formatTimestamp(nowMs),
    count: 1,
  }),
  countOf: (count, lastMs) => ({ count, lastTimestamp: formatTimestamp(lastMs) }),
};

function keyOf({ regarding, related, type, reason, fieldPath }: EventNote, last: string): string {
  const { namespace, name, uid } = regarding.metadata;
  return JSON.stringify([regarding.kind, namespace, name, uid, related?.metadata.uid, type, reason, fieldPath, last]);
}

function shorten(note: string): string {
  return note.length > noteMax ? `${note.slice(0, noteMax - 3)}...` : note;
}

function referenceTo({ apiVersion, kind, metadata }: KubeObject, fieldPath?: string): Event["involvedObject"] {
  const { name, namespace, uid, resourceVersion } = metadata;
  return {
    apiVersion,
    kind,
    name,
    ...(namespace !== undefined && { namespace }),
    ...(uid !== undefined && { uid }),
    ...(resourceVersion !== undefined && { resourceVersion }),
    ...(fieldPath !== undefined && { fieldPath }),
  };
}
