import type {
  ConfigMap,
  DownwardAPIVolumeFile,
  KeyToPath,
  Pod,
  Secret,
  Volume,
  VolumeProjection,
} from "@agent-sandbox/api";
import type { VolumeFile } from "../host/volume.ts";
import { fieldValue, type NodeFacts, resourceFieldValue } from "../pod-spec/downward-api.ts";

/** Where files of volumes come from; tokens are minted by the API server and handed in. */
export interface VolumeSources {
  readonly configMap: (name: string) => ConfigMap | undefined;
  readonly secret: (name: string) => Secret | undefined;
  /** The token for an audience and a lifetime, if it has been obtained already. */
  readonly token: (projection: TokenWish) => string | undefined;
  readonly node: NodeFacts;
}

/** A token a projected volume asks for. */
export interface TokenWish {
  readonly audience?: string;
  readonly expirationSeconds: number;
}

/** Either all files of a volume, or why they cannot be had yet. */
export type VolumeFilesResult =
  | { readonly ok: true; readonly files: readonly VolumeFile[] }
  | { readonly ok: false; readonly message: string };

/** Lifetime of a token that names none; Kubernetes' default. */
const tokenSecondsDefault = 3600;

/** Mode of a file that names none. */
const modeDefault = 0o644;

/** Whether a volume's content is written by the node as files. */
export function isFilesVolume(volume: Volume): boolean {
  return [volume.configMap, volume.secret, volume.downwardAPI, volume.projected].some((source) => source !== undefined);
}

/** The files of a configMap, secret, downwardAPI or projected volume. */
export function volumeFiles(pod: Pod, volume: Volume, sources: VolumeSources): VolumeFilesResult {
  if (volume.configMap !== undefined) {
    return fromConfigMap({ ...volume.configMap, mode: volume.configMap.defaultMode ?? modeDefault }, sources);
  }
  if (volume.secret !== undefined) {
    const { secretName, items, optional, defaultMode = modeDefault } = volume.secret;
    return fromSecret({ name: secretName, items, optional, mode: defaultMode }, sources);
  }
  if (volume.downwardAPI !== undefined) {
    return {
      ok: true,
      files: fromDownward(pod, volume.downwardAPI.items ?? [], volume.downwardAPI.defaultMode ?? modeDefault, sources),
    };
  }
  const files: VolumeFile[] = [];
  for (const projection of volume.projected?.sources ?? []) {
    const result = fromProjection(pod, projection, volume.projected?.defaultMode ?? modeDefault, sources);
    if (!result.ok) return result;
    files.push(...result.files);
  }
  return { ok: true, files };
}

function fromProjection(
  pod: Pod,
  projection: VolumeProjection,
  mode: number,
  sources: VolumeSources,
): VolumeFilesResult {
  if (projection.configMap !== undefined) return fromConfigMap({ ...projection.configMap, mode }, sources);
  if (projection.secret !== undefined) return fromSecret({ ...projection.secret, mode }, sources);
  if (projection.downwardAPI !== undefined) {
    return { ok: true, files: fromDownward(pod, projection.downwardAPI.items ?? [], mode, sources) };
  }
  if (projection.serviceAccountToken !== undefined) {
    const { audience, expirationSeconds = tokenSecondsDefault, path } = projection.serviceAccountToken;
    const token = sources.token({ expirationSeconds, ...(audience !== undefined && { audience }) });
    if (token === undefined) return { ok: false, message: "the service account token is not there yet" };
    return { ok: true, files: [fileOf(path, Buffer.from(token), mode)] };
  }
  return {
    ok: false,
    message: `a projected volume names a source this node does not support: ${Object.keys(projection).join(", ")}`,
  };
}

interface KeyedSource {
  readonly name?: string | undefined;
  readonly items?: readonly KeyToPath[] | undefined;
  readonly optional?: boolean | undefined;
  readonly mode: number;
}

function fromConfigMap(source: KeyedSource, sources: VolumeSources): VolumeFilesResult {
  const found = sources.configMap(source.name ?? "");
  if (found === undefined) return missing(source, "configmap");
  const entries = new Map<string, Buffer>();
  for (const [key, value] of Object.entries(found.data ?? {})) entries.set(key, Buffer.from(value));
  for (const [key, value] of Object.entries(found.binaryData ?? {})) entries.set(key, Buffer.from(value, "base64"));
  return choose(source, entries, "configmap");
}

function fromSecret(source: KeyedSource, sources: VolumeSources): VolumeFilesResult {
  const found = sources.secret(source.name ?? "");
  if (found === undefined) return missing(source, "secret");
  const entries = new Map(Object.entries(found.data ?? {}).map(([key, value]) => [key, Buffer.from(value, "base64")]));
  return choose(source, entries, "secret");
}

function missing({ name = "", optional }: KeyedSource, kind: string): VolumeFilesResult {
  return optional === true ? { ok: true, files: [] } : { ok: false, message: `${kind} "${name}" not found` };
}

function choose(source: KeyedSource, entries: ReadonlyMap<string, Buffer>, kind: string): VolumeFilesResult {
  if (source.items === undefined || source.items.length === 0) {
    return { ok: true, files: [...entries].map(([key, content]) => fileOf(key, content, source.mode)) };
  }
  const files: VolumeFile[] = [];
  for (const { key, path, mode } of source.items) {
    const content = entries.get(key);
    if (content !== undefined) files.push(fileOf(path, content, mode ?? source.mode));
    else if (source.optional !== true) return { ok: false, message: `references non-existent ${kind} key: ${key}` };
  }
  return { ok: true, files };
}

function fromDownward(
  pod: Pod,
  items: readonly DownwardAPIVolumeFile[],
  mode: number,
  sources: VolumeSources,
): VolumeFile[] {
  return items.map((item) => {
    const selector = item.resourceFieldRef;
    const container = pod.spec?.containers.find(({ name }) => name === selector?.containerName);
    const text =
      item.fieldRef !== undefined
        ? fieldValue(pod, item.fieldRef.fieldPath, sources.node)
        : selector !== undefined && container !== undefined
          ? resourceFieldValue(container, selector, sources.node)
          : "";
    return fileOf(item.path, Buffer.from(text), item.mode ?? mode);
  });
}

function fileOf(path: string, content: Buffer, mode: number): VolumeFile {
  return { path, contentBase64: content.toString("base64"), mode: mode & 0o777 };
}
