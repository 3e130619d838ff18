import { readFileSync } from "node:fs";
import { parseKeyRing, type ScopedTokenKeys, secretBytesMin } from "../router/access/scoped-token.ts";
import { followFiles } from "../router/followed-files.ts";
import { RouterConfigError, type RouterFlagValues } from "./router-flags.ts";

/** Every secret and key that the router reads from files. */
interface KeySet {
  readonly secrets: readonly Uint8Array[];
  readonly publicKeys: ScopedTokenKeys["publicKeys"];
  readonly linkSecrets: readonly Uint8Array[];
}

/** Keys that follow their files: rotating one needs no restart, and one that cannot be used leaves the old ones in place. */
export class RouterKeys implements ScopedTokenKeys, Disposable {
  readonly #flags: RouterFlagValues;
  readonly #following: Disposable;
  #current: KeySet;

  /** Throws RouterConfigError where a file cannot be used. */
  constructor(flags: RouterFlagValues, onReload: (error?: unknown) => void) {
    this.#flags = flags;
    this.#current = readKeys(flags);
    this.#following = followFiles(keyFiles(flags), () => {
      try {
        this.#current = readKeys(this.#flags);
      } catch (error) {
        return onReload(error);
      }
      onReload();
    });
  }

  get secrets(): readonly Uint8Array[] {
    return this.#current.secrets;
  }

  get publicKeys(): ScopedTokenKeys["publicKeys"] {
    return this.#current.publicKeys;
  }

  /** The first signs links; each one verifies them. */
  get linkSecrets(): readonly Uint8Array[] {
    return this.#current.linkSecrets;
  }

  [Symbol.dispose](): void {
    this.#following[Symbol.dispose]();
  }
}

function keyFiles(flags: RouterFlagValues): string[] {
  return [
    ...commaList(flags["authz-scoped-token-secret-file"]),
    ...commaList(flags["authz-scoped-token-keys-file"]),
    ...commaList(flags["link-secret-file"]),
  ];
}

function readKeys(flags: RouterFlagValues): KeySet {
  return {
    secrets: commaList(flags["authz-scoped-token-secret-file"]).map(readSecret),
    publicKeys: readKeyRing(flags["authz-scoped-token-keys-file"]),
    linkSecrets: commaList(flags["link-secret-file"]).map(readSecret),
  };
}

function readKeyRing(file: string): ScopedTokenKeys["publicKeys"] {
  if (file === "") return new Map();
  try {
    return parseKeyRing(readFileSync(file, "utf8"));
  } catch (cause) {
    throw new RouterConfigError(`--authz-scoped-token-keys-file ${file}: ${String(cause)}`, { cause });
  }
}

function readSecret(file: string): Buffer {
  let text: string;
  try {
    text = readFileSync(file, "latin1");
  } catch (cause) {
    throw new RouterConfigError(`secret file ${file}: ${String(cause)}`, { cause });
  }
  const secret = Buffer.from(text.trim(), "latin1");
  if (secret.length < secretBytesMin)
    throw new RouterConfigError(
      `secret file ${file} has ${secret.length} bytes; at least ${secretBytesMin} are needed`,
    );
  return secret;
}

/** The items of a comma list, trimmed, without empty ones. */
export function commaList(text: string): string[] {
  return text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");
}
