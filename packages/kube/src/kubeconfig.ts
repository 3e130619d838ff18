import { dirname, resolve } from "node:path";
import type * as ClientNode from "@kubernetes/client-node";
import type { Clock } from "./clock.ts";
import { bearerToken, type Credentials } from "./credentials.ts";
import { readText } from "./read-text.ts";
import { tokenFile } from "./token-file.ts";

/** Which entry of which kubeconfig. */
export interface KubeconfigOptions {
  readonly path: string;
  /** Default: the file's current context. */
  readonly context?: string;
  readonly clock: Clock;
}

/** Credentials, and what else a context says. */
export interface KubeconfigContext {
  readonly credentials: Credentials;
  readonly context: string;
  readonly namespace: string | undefined;
}

interface Named {
  readonly name: string;
}

interface ContextEntry extends Named {
  readonly context?: { readonly cluster?: string; readonly user?: string; readonly namespace?: string };
}

interface ClusterEntry extends Named {
  readonly cluster?: Readonly<Record<string, unknown>>;
}

interface UserEntry extends Named {
  readonly user?: Readonly<Record<string, unknown>>;
}

interface Kubeconfig {
  readonly "current-context"?: string;
  readonly contexts?: readonly ContextEntry[];
  readonly clusters?: readonly ClusterEntry[];
  readonly users?: readonly UserEntry[];
}

/** Reads a kubeconfig. Certificates, tokens and passwords are read here; anything that runs a program is left to client-node. */
export async function loadKubeconfig(options: KubeconfigOptions): Promise<KubeconfigContext> {
  const { path } = options;
  const config = await parseKubeconfig(readText(path), path);
  const context = options.context ?? config["current-context"];
  if (context === undefined || context === "") throw new Error(`kubeconfig ${path} has no current context; name one`);
  const chosen = find(config.contexts, context, "context", path).context ?? {};
  const { cluster = {} } = find(config.clusters, chosen.cluster ?? "", "cluster", path);
  const user = chosen.user ? (find(config.users, chosen.user, "user", path).user ?? {}) : {};
  const credentials = {
    ...clusterCredentials(cluster, path),
    ...(needsPlugin(user) ? await pluginCredentials(path, context) : userCredentials(user, options)),
  };
  return { credentials, context, namespace: chosen.namespace };
}

async function parseKubeconfig(text: string, path: string): Promise<Kubeconfig> {
  try {
    // What `up` writes is JSON, which spares every command the YAML parser.
    if (text.trimStart().startsWith("{")) return JSON.parse(text) as Kubeconfig;
    const { parse } = await import("yaml");
    return (parse(text) ?? {}) as Kubeconfig;
  } catch (cause) {
    throw new Error(`kubeconfig ${path} cannot be parsed`, { cause });
  }
}

function find<E extends Named>(entries: readonly E[] | undefined, name: string, kind: string, path: string): E {
  const entry = entries?.find((candidate) => candidate.name === name);
  if (entry === undefined) throw new Error(`kubeconfig ${path} has no ${kind} named "${name}"`);
  return entry;
}

function clusterCredentials(cluster: Readonly<Record<string, unknown>>, path: string): Credentials {
  const server = text(cluster, "server");
  if (server === undefined) throw new Error(`kubeconfig ${path} names no server`);
  const ca = pem(cluster, "certificate-authority", path);
  const serverName = text(cluster, "tls-server-name");
  return {
    server,
    ...(ca !== undefined && { ca }),
    ...(serverName !== undefined && { serverName }),
    ...(cluster["insecure-skip-tls-verify"] === true && { insecureSkipTlsVerify: true }),
  };
}

type UserCredentials = Pick<Credentials, "cert" | "key" | "authorize">;

function userCredentials(user: Readonly<Record<string, unknown>>, { path, clock }: KubeconfigOptions): UserCredentials {
  const cert = pem(user, "client-certificate", path);
  const key = pem(user, "client-key", path);
  const authorize = authorizeUser(user, path, clock);
  return {
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
    ...(authorize !== undefined && { authorize }),
  };
}

function authorizeUser(user: Readonly<Record<string, unknown>>, path: string, clock: Clock): Credentials["authorize"] {
  const file = text(user, "tokenFile");
  if (file !== undefined) return tokenFile(resolve(dirname(path), file), clock);
  const token = text(user, "token");
  if (token !== undefined) return bearerToken(token);
  const username = text(user, "username");
  if (username === undefined) return undefined;
  const authorization = `Basic ${Buffer.from(`${username}:${text(user, "password") ?? ""}`).toString("base64")}`;
  return () => Promise.resolve({ authorization });
}

function needsPlugin(user: Readonly<Record<string, unknown>>): boolean {
  return user["exec"] !== undefined || user["auth-provider"] !== undefined;
}

/** Exec plugins and OIDC. Loaded here because it takes longer than most commands run. */
async function pluginCredentials(path: string, context: string): Promise<UserCredentials> {
  const { KubeConfig } = await clientNode(path);
  const config = new KubeConfig();
  config.loadFromFile(path);
  config.setCurrentContext(context);
  const first = await pluginAnswer(config);
  return {
    ...(typeof first.cert === "string" && { cert: first.cert }),
    ...(typeof first.key === "string" && { key: first.key }),
    // The plugin's answer is cached until it expires by client-node itself.
    authorize: async () => {
      const { headers } = await pluginAnswer(config);
      return headers?.Authorization === undefined ? {} : { authorization: headers.Authorization };
    },
  };
}

/** The published SDK leaves this package to those who need it; a checkout and a release of the command have it. */
async function clientNode(path: string): Promise<typeof ClientNode> {
  try {
    return await import("@kubernetes/client-node");
  } catch (cause) {
    const what = `kubeconfig ${path}: its user gets a credential from a program or a provider`;
    throw new Error(`${what}; install @kubernetes/client-node beside the SDK to use it`, { cause });
  }
}

interface PluginAnswer {
  headers?: { Authorization?: string };
  cert?: unknown;
  key?: unknown;
}

async function pluginAnswer(config: { applyToHTTPSOptions(options: object): Promise<void> }): Promise<PluginAnswer> {
  const answer: PluginAnswer = { headers: {} };
  await config.applyToHTTPSOptions(answer);
  const plain = (value: unknown): unknown => (Buffer.isBuffer(value) ? value.toString("utf8") : value);
  return { ...answer, cert: plain(answer.cert), key: plain(answer.key) };
}

/** A PEM given inline in base64 (`<name>-data`) or as a file, relative to the kubeconfig. */
function pem(entry: Readonly<Record<string, unknown>>, name: string, path: string): string | undefined {
  const inline = text(entry, `${name}-data`);
  if (inline !== undefined) return Buffer.from(inline, "base64").toString("utf8");
  const file = text(entry, name);
  return file === undefined ? undefined : readText(resolve(dirname(path), file));
}

function text(entry: Readonly<Record<string, unknown>>, name: string): string | undefined {
  const value = entry[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}
