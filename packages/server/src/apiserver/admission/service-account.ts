import { forbidden, type Pod, type ServiceAccount, serviceAccounts, type Volume } from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** Where programs in a container look for their token. */
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount";
/** An hour and a little more: the token is renewed at 80 % of its life and an hour is what clients promise to reread within. */
const tokenExpirationSeconds = 3607;
/** Kubernetes' alphabet for generated names: no vowels, so that no words appear. */
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789";

/** Gives each new Pod its ServiceAccount, the token volume and the account's pull secrets. */
export class ServiceAccountAdmission implements Admission {
  readonly name = "ServiceAccount";
  readonly #reader: ObjectReader;
  readonly #random: () => number;

  constructor(reader: ObjectReader, random: () => number) {
    this.#reader = reader;
    this.#random = random;
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    return verb === "create" && group === "" && resource === "pods" && subresource === "";
  }

  async mutate(attributes: AdmissionAttributes): Promise<void> {
    const pod = attributes.object as Pod;
    if (pod.spec === undefined) return;
    const name = pod.spec.serviceAccountName || pod.spec.serviceAccount || "default";
    pod.spec.serviceAccountName = name;
    pod.spec.serviceAccount = name;
    const account = await this.#accountOf(attributes, name);
    if ((pod.spec.imagePullSecrets?.length ?? 0) === 0 && account?.imagePullSecrets !== undefined) {
      pod.spec.imagePullSecrets = account.imagePullSecrets.map((reference) => ({ ...reference }));
    }
    const automount = pod.spec.automountServiceAccountToken ?? account?.automountServiceAccountToken ?? true;
    if (automount) this.#mountToken(pod);
  }

  /** The account `default` is made by a controller just after its namespace, so its absence only means that it is early. */
  async #accountOf(
    { namespace, name: podName }: AdmissionAttributes,
    name: string,
  ): Promise<ServiceAccount | undefined> {
    const account = await this.#reader.get(serviceAccounts, { namespace, name });
    if (account !== undefined || name === "default") return account;
    const why = `error looking up service account ${namespace}/${name}: serviceaccount "${name}" not found`;
    throw forbidden({ resource: "pods", name: podName }, why);
  }

  #mountToken(pod: Pod): void {
    const containers = [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])];
    const lacking = containers.filter(
      ({ volumeMounts = [] }) => !volumeMounts.some(({ mountPath }) => mountPath === tokenPath),
    );
    if (lacking.length === 0 || pod.spec === undefined) return;
    const existing = pod.spec.volumes?.find(({ name }) => name.startsWith("kube-api-access-"));
    const volume = existing ?? tokenVolume(`kube-api-access-${this.#suffix()}`);
    if (existing === undefined) pod.spec.volumes = [...(pod.spec.volumes ?? []), volume];
    for (const container of lacking) {
      container.volumeMounts = [
        ...(container.volumeMounts ?? []),
        { name: volume.name, readOnly: true, mountPath: tokenPath },
      ];
    }
  }

  #suffix(): string {
    return Array.from({ length: 5 }, () => suffixAlphabet[Math.floor(this.#random() * suffixAlphabet.length)]).join("");
  }
}

function tokenVolume(name: string): Volume {
  return {
    name,
    projected: {
      defaultMode: 0o644,
      sources: [
        { serviceAccountToken: { expirationSeconds: tokenExpirationSeconds, path: "token" } },
        { configMap: { name: "kube-root-ca.crt", items: [{ key: "ca.crt", path: "ca.crt" }] } },
        {
          downwardAPI: {
            items: [{ path: "namespace", fieldRef: { apiVersion: "v1", fieldPath: "metadata.namespace" } }],
          },
        },
      ],
    },
  };
}
