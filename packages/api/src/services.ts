import { annotationKeys } from "./labels.ts";
import type { ObjectMeta } from "./meta.ts";

/** A program that a sandbox keeps running: started with it, and again whenever it ends. */
export interface SandboxService {
  readonly name: string;
  /** argv; no shell is added. */
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user?: string;
}

/**
 * Services of one sandbox, and the bytes that all of them may take in its annotation, from where they reach the daemon's environment. The
 * SDKs of the other languages write the same JSON and count its bytes in UTF-8, too.
 */
export const servicesMax = 16;
const servicesBytesMax = 8192;

const utf8 = new TextEncoder();

function isTooLong(text: string): boolean {
  return utf8.encode(text).length > servicesBytesMax;
}

const namePattern = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** Whether a service may have that name. */
export function isServiceName(name: string): boolean {
  return namePattern.test(name);
}

/** The services that an object's annotation declares; none where it is absent or cannot be read. */
export function servicesOf({ annotations: own }: Pick<ObjectMeta, "annotations">): SandboxService[] {
  const text = own?.[annotationKeys.services] ?? "";
  if (text === "" || isTooLong(text)) return [];
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    return [];
  }
  const services = Array.isArray(list) ? list.flatMap(readService) : [];
  return services.slice(0, servicesMax);
}

function readService(value: unknown): SandboxService[] {
  const { name, command, env, cwd, user } = (value ?? {}) as Partial<Record<keyof SandboxService, unknown>>;
  if (typeof name !== "string" || !isServiceName(name)) return [];
  if (!Array.isArray(command) || command.length === 0 || !command.every(isText)) return [];
  const variables = Object.entries(typeof env === "object" && env !== null ? env : {}).filter(isPair);
  return [
    {
      name,
      command,
      ...(variables.length > 0 && { env: Object.fromEntries(variables) }),
      ...(isText(cwd) && { cwd }),
      ...(isText(user) && { user }),
    },
  ];
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

function isPair(pair: [string, unknown]): pair is [string, string] {
  return isText(pair[1]);
}

/** The value of the annotation for some services; undefined where there are more than a sandbox can have, null for none. */
export function formatServices(services: readonly SandboxService[]): string | null | undefined {
  if (services.length === 0) return null;
  const text = JSON.stringify(services);
  return services.length > servicesMax || isTooLong(text) ? undefined : text;
}
