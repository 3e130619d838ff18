import { forbidden, type KubeObject, type Pod, pods } from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

const nodePrefix = "system:node:";

/** A node agent writes its own Node and Lease, the status of its own Pods and tokens for them, and nothing else. */
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

function changedKeys(before: Record<string, string>, after: Record<string, string>): string[] {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((key) => before[key] !== after[key]);
}

function refuse({ group, resource, name }: AdmissionAttributes, why: string): Error {
  return forbidden({ group, resource, name }, why);
}
