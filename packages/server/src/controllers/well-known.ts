import { annotations, labels } from "@agent-sandbox/api";

/** Tracking label: name hash of the Sandbox, on Pod, Service and PVC. */
export const nameHashLabel = labels.sandboxNameHash;
/** Outside permission to adopt an unowned object; the value must be `true`. */
export const adoptableLabel = labels.adoptable;
/** Which client asked for the object. */
export const createdByLabel = labels.createdBy;
/** `warm` or `cold`. */
export const launchTypeLabel = labels.launchType;
/** Name hash of the pool an unclaimed Sandbox belongs to. */
export const warmPoolLabel = labels.warmPoolSandbox;
/** Name hash of the template; network policies select on it. */
export const templateRefHashLabel = labels.templateRefHash;
/** Blueprint hash of an unclaimed pool member. */
export const templateHashLabel = labels.templateHash;
/** Deprecated predecessor of `templateHashLabel`, written for outside readers only. */
export const podTemplateHashLabel = labels.podTemplateHash;
/** UID of the claim that owns a Sandbox. */
export const claimUidLabel = labels.claimUid;

/** Name of the Pod a Sandbox tracks. */
export const podNameAnnotation = annotations.podName;
/** Template name, for metric labels. */
export const templateRefAnnotation = annotations.templateRef;
/** Label keys copied from the pod template, sorted and joined by commas. */
export const propagatedLabelsAnnotation = annotations.propagatedLabels;
/** Annotation keys copied from the pod template, sorted and joined by commas. */
export const propagatedAnnotationsAnnotation = annotations.propagatedAnnotations;
/** JSON map of W3C trace headers. */
export const traceContextAnnotation = annotations.traceContext;
/** Reservation of a warm Sandbox by a claim; as a label it is the legacy form. */
export const sandboxNameKey = annotations.sandboxName;
/** First time the controller saw a claim. */
export const controllerFirstObservedAnnotation = annotations.controllerFirstObservedAt;
/** First time an outside webhook saw a claim. */
export const webhookFirstObservedAnnotation = annotations.webhookFirstObservedAt;
/** When the client asked for a claim. */
export const clientFirstRequestedAnnotation = annotations.clientFirstRequestedAt;
/** Mark of the reference: when a claim was Ready first. Read, never written. */
export const claimFirstReadyAnnotation = annotations.claimFirstReadyAt;
/** Tells the cluster autoscaler that a Pod may be moved. */
export const safeToEvictAnnotation = annotations.safeToEvict;

/** Last reported activity of a Sandbox, RFC 3339. Written by router and node. */
export const lastActivityAnnotation = annotations.lastActivityAt;
/** When a Sandbox that may wake on traffic was put to sleep by its user, RFC 3339. */
export const suspendedAtAnnotation = annotations.suspendedAt;
/** Pod-template annotation keys of a pool member that are the pool's default. */
export const poolDefaultAnnotationsAnnotation = annotations.poolDefaultAnnotations;
/** How often the controller replaced a failed Pod of this Sandbox, and which one last: `<count>@<Pod UID>`. */
export const podReplacementsAnnotation = annotations.podReplacements;
