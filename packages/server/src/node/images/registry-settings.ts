import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { z } from "zod";
import { ImageError } from "./image-error.ts";
import type { RegistryConfig } from "./pull-image.ts";
import { parseDockerConfig, type RegistryCredentials } from "./registry-auth.ts";

/** What the operator decided about registries. */
export interface RegistrySettings extends RegistryConfig {
  /** For every pod, after its own imagePullSecrets. */
  readonly credentials: ReadonlyMap<string, RegistryCredentials>;
}

const settingsSchema = z.strictObject({
  mirrors: z.record(z.string(), z.array(z.string())).default({}),
  insecure: z.array(z.string()).default([]),
  /** PEM files of authorities to believe besides the machine's own. */
  caFiles: z.array(z.string()).default([]),
});

/**
 * The operator's two files in the engine's data directory: `registries.json` and `docker-config.json`, which is a docker config file. They are read
 * for every pull, so that a change needs no restart. A file that is there and cannot be read fails the pull that needs it.
 */
export class RegistryFiles {
  readonly #directory: string;
  #trusted = "";

  constructor(directory: string) {
    this.#directory = directory;
  }

  async read(): Promise<RegistrySettings> {
    const path = join(this.#directory, "registries.json");
    const text = await this.#text(path);
    const parsed = settingsSchema.safeParse(text === undefined ? {} : parseJson(path, text));
    if (!parsed.success) throw new ImageError("malformed", `${path}: ${z.prettifyError(parsed.error)}`);
    const { mirrors, insecure, caFiles } = parsed.data;
    await this.#trust(caFiles);
    const docker = await this.#text(join(this.#directory, "docker-config.json"));
    return { mirrors, insecure, credentials: parseDockerConfig(docker ?? "{}") };
  }

  /** `fetch` has no authorities of its own: they are those of the process, in which nothing else relies on the default ones. */
  async #trust(files: readonly string[]): Promise<void> {
    const extra = await Promise.all(files.map((file) => this.#text(file, "must be there")));
    const key = extra.join("\n");
    if (key === this.#trusted) return;
    const known = [...getCACertificates("bundled"), ...getCACertificates("system")];
    setDefaultCACertificates([...new Set([...known, ...extra.filter((text) => text !== undefined)])]);
    this.#trusted = key;
  }

  async #text(path: string, rule?: "must be there"): Promise<string | undefined> {
    try {
      return await readFile(path, "utf8");
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === "ENOENT" && rule === undefined) return undefined;
      throw new ImageError("malformed", `${path} cannot be read: ${(cause as Error).message}`, { cause });
    }
  }
}

function parseJson(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ImageError("malformed", `${path} is not JSON: ${(cause as Error).message}`, { cause });
  }
}
