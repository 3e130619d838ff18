import { z } from "zod";

/** A name and a password, or a token that stands for both. */
export type RegistryCredentials =
  | { readonly kind: "basic"; readonly username: string; readonly password: string }
  | { readonly kind: "token"; readonly token: string };

const authEntry = z.object({
  auth: z.string().optional(),
  username: z.string().optional(),
  password: z.string().optional(),
  identitytoken: z.string().optional(),
  registrytoken: z.string().optional(),
});
const dockerConfig = z.object({ auths: z.record(z.string(), authEntry).optional() });
const legacyConfig = z.record(z.string(), authEntry);

/** Credentials by registry, from a docker config file or an imagePullSecret of either type; what cannot be read is empty. */
export function parseDockerConfig(text: string): ReadonlyMap<string, RegistryCredentials> {
  const found = new Map<string, RegistryCredentials>();
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return found;
  }
  const modern = dockerConfig.safeParse(json);
  const auths =
    modern.success && modern.data.auths !== undefined ? modern.data.auths : legacyConfig.safeParse(json).data;
  for (const [key, entry] of Object.entries(auths ?? {})) {
    const credentials = credentialsOf(entry);
    if (credentials !== undefined) found.set(registryHostOf(key), credentials);
  }
  return found;
}

function credentialsOf(entry: z.infer<typeof authEntry>): RegistryCredentials | undefined {
  const token = entry.registrytoken;
  if (token !== undefined && token !== "") return { kind: "token", token };
  if (entry.username !== undefined && entry.password !== undefined) {
    return { kind: "basic", username: entry.username, password: entry.password };
  }
  if (entry.auth === undefined) return undefined;
  const decoded = Buffer.from(entry.auth, "base64").toString("utf8");
  const colon = decoded.indexOf(":");
  if (colon < 0) return undefined;
  return { kind: "basic", username: decoded.slice(0, colon), password: decoded.slice(colon + 1) };
}

/** `https://index.docker.io/v1/` and `docker.io` are one registry; schemes and paths do not count. */
function registryHostOf(key: string): string {
  const host = key.replace(/^[a-z]+:\/\//, "").replace(/\/.*$/, "");
  return host === "index.docker.io" || host === "registry-1.docker.io" ? "docker.io" : host;
}

/** One challenge of a WWW-Authenticate header. */
export interface Challenge {
  readonly scheme: string;
  readonly parameters: Readonly<Record<string, string>>;
}

/** Reads the first Bearer or Basic challenge. */
export function parseChallenge(header: string): Challenge | undefined {
  const match = /\b(bearer|basic)\b\s*(.*)/is.exec(header.slice(0, 4096));
  if (match === null) return undefined;
  const parameters: Record<string, string> = {};
  for (const [, name, quoted, bare] of (match[2] ?? "").matchAll(/([a-z_]+)=(?:"([^"]*)"|([^\s,]+))/gi)) {
    if (name !== undefined) parameters[name.toLowerCase()] = quoted ?? bare ?? "";
  }
  return { scheme: (match[1] ?? "").toLowerCase(), parameters };
}
