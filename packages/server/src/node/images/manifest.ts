import { createHash } from "node:crypto";
import { z } from "zod";
import { ImageError } from "./image-error.ts";
import type { ImageConfig } from "./image-state.ts";

/** Largest manifest or configuration that is read; registries themselves refuse more than 4 MiB. */
export const manifestBytesMax = 4 * 1024 * 1024;

const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/, "must be a sha256 digest");
const descriptor = z.object({ mediaType: z.string().optional(), digest, size: z.number().int().nonnegative() });
const platform = z.object({ architecture: z.string(), os: z.string(), variant: z.string().optional() });
const manifestSchema = z.object({ config: descriptor, layers: z.array(descriptor).max(512) });
const indexSchema = z.object({
  manifests: z
    .array(
      descriptor.extend({ platform: platform.optional(), annotations: z.record(z.string(), z.string()).optional() }),
    )
    .max(1024),
});
const strings = z.array(z.string()).nullish();
const configSchema = z.object({
  architecture: z.string().optional(),
  os: z.string().optional(),
  config: z
    .object({
      Entrypoint: strings,
      Cmd: strings,
      Env: strings,
      User: z.string().nullish(),
      WorkingDir: z.string().nullish(),
      StopSignal: z.string().nullish(),
    })
    .nullish(),
  rootfs: z.object({ diff_ids: z.array(digest).max(512) }),
});

/** A piece of content, named by its digest. */
export type Descriptor = z.infer<typeof descriptor>;
/** One image for one platform. */
export type Manifest = z.infer<typeof manifestSchema>;
/** The same image for several platforms. */
export type ManifestIndex = z.infer<typeof indexSchema>;

/** The media types asked for and understood. */
export const manifestMediaTypes = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
];

/** Reads a manifest or an index, whichever it is. */
export function parseManifest(
  bytes: Buffer,
): { kind: "manifest"; manifest: Manifest } | { kind: "index"; index: ManifestIndex } {
  const json = parseJson(bytes, "manifest");
  if (typeof json === "object" && json !== null && "manifests" in json) {
    return { kind: "index", index: check(indexSchema, json, "image index") };
  }
  return { kind: "manifest", manifest: check(manifestSchema, json, "image manifest") };
}

/** The entry of an index for this machine. */
export function choosePlatform(index: ManifestIndex, architecture: string, name: string): Descriptor {
  const found = index.manifests.find(
    (entry) => entry.platform?.os === "linux" && entry.platform.architecture === architecture,
  );
  // An index of one image without a platform is what `docker save` and layout tools write.
  const only =
    index.manifests.length === 1 && index.manifests[0]?.platform === undefined ? index.manifests[0] : undefined;
  const chosen = found ?? only;
  if (chosen !== undefined) return chosen;
  const offered = index.manifests.flatMap((entry) =>
    entry.platform ? [`${entry.platform.os}/${entry.platform.architecture}`] : [],
  );
  throw new ImageError(
    "no-platform",
    `image ${name} has no linux/${architecture} variant; it has ${offered.join(", ") || "none"}`,
  );
}

/** Reads an image's configuration. */
export function parseConfig(bytes: Buffer): { config: ImageConfig; diffIds: readonly string[]; architecture?: string } {
  const parsed = check(configSchema, parseJson(bytes, "image configuration"), "image configuration");
  const { Entrypoint, Cmd, Env, User, WorkingDir, StopSignal } = parsed.config ?? {};
  const config: ImageConfig = {
    entrypoint: Entrypoint ?? [],
    cmd: Cmd ?? [],
    env: Env ?? [],
    user: User ?? "",
    workingDir: WorkingDir ?? "",
    ...(StopSignal ? { stopSignal: StopSignal } : {}),
  };
  return {
    config,
    diffIds: parsed.rootfs.diff_ids,
    ...(parsed.architecture !== undefined && { architecture: parsed.architecture }),
  };
}

/** `sha256:…` of some bytes. */
export function digestOf(bytes: Uint8Array | string): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

/** Node's name of this machine's architecture in the words of image platforms. */
export function imageArchitecture(nodeArch: string): string {
  return nodeArch === "x64" ? "amd64" : nodeArch === "ia32" ? "386" : nodeArch;
}

function parseJson(bytes: Buffer, what: string): unknown {
  if (bytes.length > manifestBytesMax)
    throw new ImageError("malformed", `${what} is larger than ${manifestBytesMax} bytes`);
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch (cause) {
    throw new ImageError("malformed", `${what} is not JSON`, { cause });
  }
}

function check<T>(schema: z.ZodType<T>, json: unknown, what: string): T {
  const result = schema.safeParse(json);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new ImageError("malformed", `${what}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "invalid"}`);
}
