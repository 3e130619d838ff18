import {
  type ConfigMap,
  configMaps,
  ignore,
  type Namespace,
  type ServiceAccount,
  serviceAccounts,
} from "@agent-sandbox/api";
import { type Controller, defineController, done, Informer } from "@agent-sandbox/kube";
import type { Caches, RunningCache } from "../caches.ts";
import { onChange } from "../on-change.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";

/** The ConfigMap by which Pods know the API server's authority. */
const rootCaName = "kube-root-ca.crt";
const rootCaDescription =
  "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/** What one namespace should have and has. */
export interface Observed {
  readonly namespace: Namespace;
  readonly account: ServiceAccount | undefined;
  readonly rootCa: ConfigMap | undefined;
  readonly caBundlePem: string;
}

/** One step. */
export type Action =
  | { readonly do: "create-account"; readonly account: ServiceAccount }
  | { readonly do: "create-root-ca"; readonly configMap: ConfigMap }
  | { readonly do: "update-root-ca"; readonly configMap: ConfigMap };

/** Decides what a namespace lacks of what every namespace has. Exported for tests. */
export function planNamespaceAccounts({ namespace, account, rootCa, caBundlePem }: Observed): readonly Action[] {
  if (namespace.metadata.deletionTimestamp !== undefined) return [];
  const { name } = namespace.metadata;
  const actions: Action[] = [];
  if (account === undefined) {
    actions.push({
      do: "create-account",
      account: { apiVersion: "v1", kind: "ServiceAccount", metadata: { namespace: name, name: "default" } },
    });
  }
  const data = { "ca.crt": caBundlePem };
  if (rootCa === undefined) {
    const metadata = {
      namespace: name,
      name: rootCaName,
      annotations: { "kubernetes.io/description": rootCaDescription },
    };
    actions.push({ do: "create-root-ca", configMap: { apiVersion: "v1", kind: "ConfigMap", metadata, data } });
  } else if (rootCa.data?.["ca.crt"] !== caBundlePem) {
    actions.push({ do: "update-root-ca", configMap: { ...rootCa, data } });
  }
  return actions;
}

/** Keeps `default` and `kube-root-ca.crt` in every namespace. Keys are namespace names. */
export function serviceAccountsStandin(
  context: StandinContext,
  { namespaces }: Caches,
  caBundlePem: string,
): Controller & { readonly caches: readonly RunningCache[] } {
  const { client, clock } = context;
  const accounts = new Informer<ServiceAccount>({
    client,
    clock,
    resource: serviceAccounts,
    fieldSelector: "metadata.name=default",
  });
  const rootCas = new Informer<ConfigMap>({
    client,
    clock,
    resource: configMaps,
    fieldSelector: `metadata.name=${rootCaName}`,
  });
  const standin = defineController({
    name: "service-accounts",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [namespaces, accounts, rootCas],
    observe: (queue) => {
      onChange(namespaces, ({ metadata }) => queue.add(metadata.name));
      onChange(accounts, ({ metadata }) => queue.add(metadata.namespace ?? ""));
      onChange(rootCas, ({ metadata }) => queue.add(metadata.namespace ?? ""));
    },
    reconcile: async (name, signal) => {
      const namespace = namespaces.get(name);
      if (namespace === undefined) return done;
      const observed = {
        namespace,
        account: accounts.get(`${name}/default`),
        rootCa: rootCas.get(`${name}/${rootCaName}`),
        caBundlePem,
      };
      const actions = planNamespaceAccounts(observed);
      for (const action of actions) await applyAction(context, action, signal);
      return { kind: "done", actions: actions.length };
    },
  });
  return { ...standin, caches: [accounts, rootCas] };
}

async function applyAction({ client }: StandinContext, action: Action, signal: AbortSignal): Promise<void> {
  switch (action.do) {
    case "create-account":
      await client.create(serviceAccounts, action.account, { signal }).catch(ignore("AlreadyExists"));
      return;
    case "create-root-ca":
      await client.create(configMaps, action.configMap, { signal }).catch(ignore("AlreadyExists"));
      return;
    case "update-root-ca":
      await client.update(configMaps, action.configMap, { signal }).catch(ignore("NotFound"));
      return;
    default:
      return action satisfies never;
  }
}
