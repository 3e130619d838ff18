import type { Pod } from "@agent-sandbox/api";
import { keyOf } from "@agent-sandbox/api";
import type { UserInfo } from "../request/user-info.ts";
import type { AuthorizationAttributes, Decision } from "./authorizer.ts";

const nodePrefix = "system:node:";
const guarded = new Set(["secrets", "configmaps", "persistentvolumeclaims"]);
const readVerbs = new Set(["get", "list", "watch"]);

/**
 * What a node may read: the Secrets, ConfigMaps and claims that pods bound to it name, one by one. An attacker with a node's
 * credential reads what its own pods read. Bound: the references of the pods there are.
 */
export class NodeReads {
  /** References by pod, and by node how many of its pods hold each. */
  readonly #byPod = new Map<string, { readonly node: string; readonly references: ReadonlySet<string> }>();
  readonly #byNode = new Map<string, Map<string, number>>();

  /** Takes note of a pod as it is now; called before the write is answered. */
  change(pod: Pod, deleted: boolean): void {
    const key = keyOf(pod);
    const before = this.#byPod.get(key);
    if (before !== undefined) {
      this.#count(before.node, before.references, -1);
      this.#byPod.delete(key);
    }
    const node = pod.spec?.nodeName ?? "";
    if (deleted || node === "") return;
    const references = referencesOf(pod);
    this.#byPod.set(key, { node, references });
    this.#count(node, references, 1);
  }

  /** The decision about a node's read of a guarded kind; undefined for every other request. */
  decide(attributes: AuthorizationAttributes, { username }: UserInfo): Decision | undefined {
    if (attributes.kind !== "resource" || !username.startsWith(nodePrefix)) return undefined;
    const { group, resource, subresource, verb, namespace, name } = attributes;
    if (group !== "" || subresource !== "" || !guarded.has(resource) || !readVerbs.has(verb)) return undefined;
    const node = username.slice(nodePrefix.length);
    if (name !== "" && this.#byNode.get(node)?.has(reference(resource, namespace, name)) === true) {
      return { verdict: "allow", reason: `a pod on node ${JSON.stringify(node)} refers to it` };
    }
    const reason = `no relationship found between node '${node}' and this object`;
    return {
      verdict: "no-opinion",
      reason: name === "" ? "can only read namespaced object of this type by name" : reason,
    };
  }

  #count(node: string, references: ReadonlySet<string>, change: number): void {
    const counts = this.#byNode.get(node) ?? new Map<string, number>();
    this.#byNode.set(node, counts);
    for (const each of references) {
      const left = (counts.get(each) ?? 0) + change;
      if (left > 0) counts.set(each, left);
      else counts.delete(each);
    }
    if (counts.size === 0) this.#byNode.delete(node);
  }
}

function reference(resource: string, namespace: string, name: string): string {
  return `${resource}/${namespace}/${name}`;
}

function referencesOf({ metadata, spec }: Pod): Set<string> {
  const found = new Set<string>();
  const add = (resource: string, name: string | undefined): void => {
    if (name !== undefined && name !== "") found.add(reference(resource, metadata.namespace ?? "", name));
  };
  for (const { name } of spec?.imagePullSecrets ?? []) add("secrets", name);
  for (const { env, envFrom } of [...(spec?.initContainers ?? []), ...(spec?.containers ?? [])]) {
    for (const source of envFrom ?? []) {
      add("configmaps", source.configMapRef?.name);
      add("secrets", source.secretRef?.name);
    }
    for (const { valueFrom } of env ?? []) {
      add("configmaps", valueFrom?.configMapKeyRef?.name);
      add("secrets", valueFrom?.secretKeyRef?.name);
    }
  }
  for (const volume of spec?.volumes ?? []) {
    add("configmaps", volume.configMap?.name);
    add("secrets", volume.secret?.secretName);
    add("persistentvolumeclaims", volume.persistentVolumeClaim?.claimName);
    if (volume.ephemeral !== undefined) add("persistentvolumeclaims", `${metadata.name}-${volume.name}`);
    for (const source of volume.projected?.sources ?? []) {
      add("configmaps", source.configMap?.name);
      add("secrets", source.secret?.name);
    }
  }
  return found;
}
