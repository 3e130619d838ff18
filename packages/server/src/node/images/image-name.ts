import { ImageError } from "./image-error.ts";

/** A full image name, its defaults filled in. */
export interface ImageName {
  readonly registry: string;
  readonly repository: string;
  /** Absent when a digest is given alone. */
  readonly tag?: string;
  readonly digest?: string;
}

/** The built-in image: this machine's own /usr. */
export const hostImageName = "host.agent-sandbox.local/usr";

const namePattern =
  /^(?:([a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]+)?|\[[0-9a-fA-F:]+\](?::[0-9]+)?)\/)?([a-z0-9]+(?:(?:\.|_{1,2}|-+|\/)[a-z0-9]+)*)(?::([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?$/;

/** Whether a reference means the built-in image, in its short or its long form. */
export function isHostImage(reference: string): boolean {
  return reference === "host" || reference === hostImageName || reference === `${hostImageName}:latest`;
}

/** Whether a reference can be read at all. */
export function isImageName(reference: string): boolean {
  return namePattern.test(withRegistry(reference));
}

/** Reads a reference with docker's defaults: registry docker.io, repository library/…, tag latest. */
export function parseImageName(reference: string): ImageName {
  const match = namePattern.exec(withRegistry(reference));
  if (match === null) throw new ImageError("invalid-name", `invalid image name ${JSON.stringify(reference)}`);
  const registry = match[1] ?? "docker.io";
  const path = match[2] ?? "";
  const repository = registry === "docker.io" && !path.includes("/") ? `library/${path}` : path;
  const digest = match[4];
  const tag = match[3] ?? (digest === undefined ? "latest" : undefined);
  return { registry, repository, ...(tag !== undefined && { tag }), ...(digest !== undefined && { digest }) };
}

function withRegistry(reference: string): string {
  const slash = reference.indexOf("/");
  const first = slash < 0 ? "" : reference.slice(0, slash);
  const hasRegistry = first.includes(".") || first.includes(":") || first === "localhost";
  return hasRegistry ? reference : `docker.io/${reference}`;
}

/** The canonical text of a name. */
export function formatImageName({ registry, repository, tag, digest }: ImageName): string {
  return `${registry}/${repository}${tag === undefined ? "" : `:${tag}`}${digest === undefined ? "" : `@${digest}`}`;
}
