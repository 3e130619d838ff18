import { toBase64 } from "../plane/base64.ts";

/** A path in a sandbox: absolute, or relative to its working directory. Bytes name what is not UTF-8. */
export type SandboxPath = string | Uint8Array;

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The path as text; what is not UTF-8 is replaced. For messages. */
export function shownPath(path: SandboxPath): string {
  return typeof path === "string" ? path : new TextDecoder().decode(path);
}

/** The field of a message that names the path: text, or the bytes where they are not UTF-8. */
export function wirePath(path: SandboxPath): { readonly path: string } | { readonly rawPath: string } {
  const text = tryText(path);
  return text === undefined ? { rawPath: toBase64(path as Uint8Array) } : { path: text };
}

/** The fields of a message that names two paths. */
export function wirePaths(from: SandboxPath, to: SandboxPath): Readonly<Record<string, string>> {
  const [fromText, toText] = [tryText(from), tryText(to)];
  return {
    ...(fromText === undefined ? { rawFrom: toBase64(from as Uint8Array) } : { from: fromText }),
    ...(toText === undefined ? { rawTo: toBase64(to as Uint8Array) } : { to: toText }),
  };
}

/** The path below /v1/fs: one percent-encoded word, so that no dot or slash of a name is ever read as part of the URL. */
export function restPath(path: SandboxPath, search = new URLSearchParams()): string {
  const query = search.size === 0 ? "" : `?${search.toString()}`;
  const word = typeof path === "string" ? encodeURIComponent(path) : percentEncode(path);
  // A component of dots alone is dropped by URL parsers, encoded or not.
  return `/v1/fs/${word === "." || word === ".." ? `.%2F${word}` : word}${query}`;
}

function tryText(path: SandboxPath): string | undefined {
  if (typeof path === "string") return path;
  try {
    return strict.decode(path);
  } catch {
    return undefined;
  }
}

function percentEncode(bytes: Uint8Array): string {
  return [...bytes].map((byte) => encodeByte(byte)).join("");
}

function encodeByte(byte: number): string {
  const character = String.fromCharCode(byte);
  return /[A-Za-z0-9._~-]/.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
}
