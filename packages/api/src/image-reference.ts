/** Where an image comes from. Either a tag or a digest, or both, is always known. */
export interface ImageReference {
  readonly registry: string;
  readonly repository: string;
  readonly tag?: string;
  readonly digest?: string;
}

/** The built-in image: this machine's own /usr. */
export const hostImage = "host.agent-sandbox.local/usr";

const dockerRegistry = "docker.io";
const component = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
const repositoryShape = new RegExp(`^${component}(?:/${component})*$`);
const registryShape =
  /^(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::\d+)?$/;
const tagShape = /^\w[\w.-]{0,127}$/;
/** No other digest is verified when content is read, so no other names an image. */
const digestShape = /^sha256:[a-f0-9]{64}$/;
/** The limit of the OCI distribution specification for registry and repository together. */
const nameLengthMax = 255;

/** The reference that a Pod's `image` means; throws a SyntaxError that names what is wrong. */
export function parseImageReference(text: string): ImageReference {
  const split = splitAll(text);
  const { registry, repository, tag, digest } = split;
  const problem = problemOf(split);
  if (problem !== undefined) throw new SyntaxError(`image "${text}": ${problem}`);
  const defaultTag = digest === undefined ? { tag: "latest" } : {};
  return {
    registry,
    repository,
    ...(tag === undefined ? defaultTag : { tag }),
    ...(digest === undefined ? {} : { digest }),
  };
}

/** Whether `parseImageReference` can read the text. */
export function isImageReference(text: string): boolean {
  return problemOf(splitAll(text)) === undefined;
}

/** The full form, with registry and tag or digest. */
export function formatImageReference(image: ImageReference): string {
  const tag = image.tag === undefined ? "" : `:${image.tag}`;
  const digest = image.digest === undefined ? "" : `@${image.digest}`;
  return `${image.registry}/${image.repository}${tag}${digest}`;
}

/** Whether a Pod's `image` means the built-in one, in its short or its long form. */
export function isHostImage(text: string): boolean {
  return text === "host" || text === hostImage || text === `${hostImage}:latest`;
}

function splitAll(text: string): Split {
  const { name, tag, digest } = splitImageReference(isHostImage(text) ? hostImage : text);
  return { ...splitName(name), tag, digest };
}

function problemOf({ registry, repository, tag, digest }: Split): string | undefined {
  if (digest !== undefined && !digestShape.test(digest)) return `"${digest}" is not a sha256 digest`;
  if (tag !== undefined && !tagShape.test(tag)) return `"${tag}" is not a tag`;
  if (!registryShape.test(registry)) return `"${registry}" is not a registry`;
  if (!repositoryShape.test(repository))
    return `"${repository}" is not a repository; use lower case letters and digits`;
  return registry.length + 1 + repository.length > nameLengthMax
    ? `the name is longer than ${nameLengthMax}`
    : undefined;
}

interface Split {
  readonly registry: string;
  readonly repository: string;
  readonly tag: string | undefined;
  readonly digest: string | undefined;
}

/** The parts as they are written, valid or not, without defaults. */
export function splitImageReference(text: string): {
  name: string;
  tag: string | undefined;
  digest: string | undefined;
} {
  const at = text.indexOf("@");
  const digest = at < 0 ? undefined : text.slice(at + 1);
  const rest = at < 0 ? text : text.slice(0, at);
  // A colon before the last slash belongs to a registry's port.
  const colon = rest.lastIndexOf(":");
  if (colon <= rest.lastIndexOf("/")) return { name: rest, tag: undefined, digest };
  return { name: rest.slice(0, colon), tag: rest.slice(colon + 1), digest };
}

/** The first part is a registry if it looks like a host; short names are Docker Hub's, as everywhere. */
function splitName(name: string): { registry: string; repository: string } {
  const slash = name.indexOf("/");
  const first = name.slice(0, slash);
  const isRegistry = slash > 0 && (/[.:]/.test(first) || first === "localhost" || first !== first.toLowerCase());
  if (!isRegistry) return { registry: dockerRegistry, repository: slash < 0 ? `library/${name}` : name };
  const registry = first === "index.docker.io" ? dockerRegistry : first;
  const rest = name.slice(slash + 1);
  return { registry, repository: registry === dockerRegistry && !rest.includes("/") ? `library/${rest}` : rest };
}
