/** Which engine is meant. Nothing set: the order of the README decides. */
export interface EngineOptions {
  /** A kubeconfig file. Environment: AGENT_SANDBOX_KUBECONFIG. */
  readonly kubeconfig?: string;
  /** A context in it; alone, one of `~/.kube/config`. Environment: AGENT_SANDBOX_CONTEXT. */
  readonly context?: string;
  /** The data directory of a one-machine engine. Default `/var/lib/agent-sandbox`; environment: AGENT_SANDBOX_DATA_DIR. */
  readonly dataDir?: string;
  /** The router's address, for an engine that is not on this machine. Environment: AGENT_SANDBOX_ROUTER_URL. */
  readonly routerUrl?: string;
  /** PEM file of the authority that signed the router's certificate; default: the API server's. */
  readonly routerCa?: string;
  /** Used where a call names none; default: the context's, else `default`. Environment: AGENT_SANDBOX_NAMESPACE. */
  readonly namespace?: string;
}

/** Where an engine was found. */
export type EngineSource =
  | { readonly kind: "kubeconfig"; readonly path: string; readonly context?: string }
  | { readonly kind: "in-cluster"; readonly host: string; readonly port: string }
  | { readonly kind: "local"; readonly dataDir: string };

/** What the choice depends on. */
export interface ChoiceQuestion {
  readonly options: EngineOptions;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether this process has a ServiceAccount's token. */
  readonly hasServiceAccount: boolean;
  readonly homeDir: string;
}

/** The default data directory of the one-machine engine. */
export const dataDirDefault = "/var/lib/agent-sandbox";

/**
 * Chooses an engine: an explicit option; the environment's kubeconfig or context; the cluster this process runs in; the
 * engine of this machine. The current context of a kubeconfig is used only where that file is named.
 */
export function chooseEngine({ options, env, hasServiceAccount, homeDir }: ChoiceQuestion): EngineSource {
  if (options.kubeconfig !== undefined || options.context !== undefined) {
    return kubeconfigSource(options.kubeconfig, options.context, homeDir);
  }
  const local = { kind: "local", dataDir: options.dataDir ?? env["AGENT_SANDBOX_DATA_DIR"] ?? dataDirDefault } as const;
  if (options.dataDir !== undefined) return local;
  const kubeconfig = nonEmpty(env["AGENT_SANDBOX_KUBECONFIG"]);
  const context = nonEmpty(env["AGENT_SANDBOX_CONTEXT"]);
  if (kubeconfig !== undefined || context !== undefined) return kubeconfigSource(kubeconfig, context, homeDir);
  const host = nonEmpty(env["KUBERNETES_SERVICE_HOST"]);
  if (host !== undefined && hasServiceAccount) {
    return { kind: "in-cluster", host, port: env["KUBERNETES_SERVICE_PORT"] ?? "443" };
  }
  return local;
}

function kubeconfigSource(path: string | undefined, context: string | undefined, homeDir: string): EngineSource {
  return {
    kind: "kubeconfig",
    path: path ?? `${homeDir}/.kube/config`,
    ...(context !== undefined && { context }),
  };
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === "" ? undefined : text;
}
