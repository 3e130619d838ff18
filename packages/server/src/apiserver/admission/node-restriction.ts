import {
  forbidden,
  type KubeObject,
  ownGroup,
  type Pod,
  pods,
  type SandboxArchive,
  type SandboxSnapshot,
  semanticEqual,
} from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

const nodePrefix = "system:node:";

/** A node agent writes its own Node and Lease, the status of its own Pods, snapshots and archives and tokens for its Pods, and nothing else. */
export class NodeRestriction implements Admission {
  readonly name = "NodeRestriction";
  readonly #reader: ObjectReader;

  constructor(reader: ObjectReader) {
    this.#reader = reader;
  }

  handles({ user }: AdmissionAttributes): boolean {
    return user.username.startsWith(nodePrefix);
  }

  async validate(attributes: AdmissionAttributes): Promise<void> {
    const nodeName = attributes.user.username.slice(nodePrefix.length);
    switch (`${attributes.group}/${attributes.resource}`) {
      case "/nodes":
        return checkNode(attributes, nodeName);
      case "/pods":
        return checkPod(attributes, nodeName);
      case "/serviceaccounts":
        return this.#checkToken(attributes, nodeName);
      case "coordination.k8s.io/leases":
        return checkLease(attributes, nodeName);
      case `${ownGroup}/sandboxsnapshots`:
        return checkSnapshot(attributes, nodeName);
      case `${ownGroup}/sandboxarchives`:
        return checkArchive(attributes, nodeName);
      default:
        return;
    }
  }

  async #checkToken(attributes: AdmissionAttributes, nodeName: string): Promise<void> {
    if (attributes.subresource !== "token" || attributes.object === undefined) return;
    const { boundObjectRef: bound } =
      (attributes.object as KubeObject & { spec?: { boundObjectRef?: BoundPod } }).spec ?? {};
    if (bound?.kind !== "Pod" || !bound.name || !bound.uid)
      throw refuse(attributes, "node requested token not bound to a pod");
    const pod = await this.#reader.get(pods, { namespace: attributes.namespace, name: bound.name });
    if (pod?.metadata.uid !== bound.uid)
      throw refuse(attributes, `node requested token with a different UID from the running pod "${bound.name}"`);
    if (pod.spec?.nodeName !== nodeName)
      throw refuse(attributes, `node requested token bound to a pod scheduled on a different node`);
  }
}

interface BoundPod {
  readonly kind?: string;
  readonly name?: string;
  readonly uid?: string;
}

function checkNode(attributes: AdmissionAttributes, nodeName: string): void {
  const name = attributes.object?.metadata.name ?? attributes.name;
  if (name !== nodeName) throw refuse(attributes, `node "${nodeName}" is not allowed to modify node "${name}"`);
  const changed = changedKeys(attributes.oldObject?.metadata.labels ?? {}, attributes.object?.metadata.labels ?? {});
  const restricted = changed.find((key) => /(^|\.)node-restriction\.kubernetes\.io\//.test(key));
  if (restricted !== undefined) throw refuse(attributes, `is not allowed to modify label "${restricted}"`);
}

function checkPod(attributes: AdmissionAttributes, nodeName: string): void {
  const { verb, subresource } = attributes;
  const pod = (attributes.oldObject ?? attributes.object) as Pod | undefined;
  if (verb === "connect" || pod === undefined) return;
  if (verb === "create" && subresource === "") {
    const mirror = pod.metadata.annotations?.["kubernetes.io/config.mirror"];
    if (mirror === undefined)
      throw refuse(
        attributes,
        'pod does not have "kubernetes.io/config.mirror" annotation, node can only create mirror pods',
      );
  }
  if (pod.spec?.nodeName !== nodeName)
    throw refuse(attributes, `node "${nodeName}" can only ${verb} pods with spec.nodeName set to itself`);
}

function checkLease(attributes: AdmissionAttributes, nodeName: string): void {
  const { namespace } = attributes;
  const name = attributes.object?.metadata.name ?? attributes.name;
  if (namespace !== "kube-node-lease")
    throw refuse(attributes, 'can only access leases in the "kube-node-lease" system namespace');
  if (name !== nodeName)
    throw refuse(attributes, `can only access node lease with the same name as the requesting node`);
}

/** A snapshot is of the node that took it on; one that none has is for the taking (ADR 54). */
function checkSnapshot(attributes: AdmissionAttributes, nodeName: string): void {
  const taker = (object: KubeObject | undefined) => (object as SandboxSnapshot | undefined)?.status?.nodeName;
  const [before = nodeName, after] = [taker(attributes.oldObject), taker(attributes.object)];
  if (before !== nodeName || after !== nodeName)
    throw refuse(attributes, `node "${nodeName}" can only write snapshots with status.nodeName set to itself`);
}

/** What a node never says of an archive: the control plane judges by it what is deleted and made. */
const archiveMarks = ["archiveID", "podUID", "leftAt"] as const;

/** What it says only of one that was archived before this object was there. */
const adoptedMarks = ["sandboxUID", "sandbox"] as const;

/** An archive is of the node that took it on; one that none has may be taken, or refused for all to read (ADR 56). */
function checkArchive(attributes: AdmissionAttributes, nodeName: string): void {
  const [before, after] = [attributes.oldObject, attributes.object].map(
    (each) => (each as SandboxArchive)?.status ?? {},
  );
  const isOwn = [before, after].every((status) => (status?.nodeName ?? nodeName) === nodeName);
  if (!isOwn) throw refuse(attributes, `node "${nodeName}" can only write archives with status.nodeName set to itself`);
  const isAdopted = (attributes.oldObject as SandboxArchive | undefined)?.spec?.archiveID !== undefined;
  const isOpen = isAdopted && before?.nodeName === undefined;
  const marks = [...archiveMarks, ...(isOpen ? [] : adoptedMarks)];
  const changed = marks.find((mark) => !semanticEqual(before?.[mark], after?.[mark]));
  if (changed !== undefined)
    throw refuse(attributes, `node "${nodeName}" cannot write status.${changed} of an archive`);
}

function changedKeys(before: Record<string, string>, after: Record<string, string>): string[] {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((key) => before[key] !== after[key]);
}

function refuse({ group, resource, name }: AdmissionAttributes, why: string): Error {
  return forbidden({ group, resource, name }, why);
}
