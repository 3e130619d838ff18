/** Where an image comes from. Either a tag or a digest, or both, is always known. */
export interface ImageReference {
  readonly registry: string;
  readonly repository: string;
  readonly tag?: string;
  readonly digest?: string;
}

/** The built-in image: this machine's own /usr. */
export const hostImage: ImageReference = { registry: "host.agent-sandbox.local", repository: "usr", tag: "latest" };

const dockerRegistry = "docker.io";
const component = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
const repositoryShape = new RegExp(`^${component}(?:/${component})*$`);
const registryShape =
  /^(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::\d+)?$/;
const tagShape = /^\w[\w.-]{0,127}$/;
const digestShape = /^(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$/;
/** The limit of the OCI distribution specification for registry and repository together. */
const nameLengthMax = 255;

/** The reference that a Pod's `image` means; throws a SyntaxError that names what is wrong. */
export function parseImageReference(text: string): ImageReference {
  if (text === "host") return hostImage;
  const problem = (what: string) => new SyntaxError(`image "${text}": ${what}`);
  const { name, tag, digest } = splitReference(text);
  if (digest !== undefined && !digestShape.test(digest))
    throw problem(`"${digest}" is not a sha256, sha384 or sha512 digest`);
  if (tag !== undefined && !tagShape.test(tag)) throw problem(`"${tag}" is not a tag`);
  const { registry, repository } = splitName(name);
  if (!registryShape.test(registry)) throw problem(`"${registry}" is not a registry`);
  if (!repositoryShape.test(repository))
    throw problem(`"${repository}" is not a repository; use lower case letters and digits`);
  if (registry.length + 1 + repository.length > nameLengthMax)
    throw problem(`the name is longer than ${nameLengthMax}`);
  const defaultTag = digest === undefined ? { tag: "latest" } : {};
  return {
    registry,
    repository,
    ...(tag === undefined ? defaultTag : { tag }),
    ...(digest === undefined ? {} : { digest }),
  };
}

/** The full form, with registry and tag or digest. */
export function formatImageReference(image: ImageReference): string {
  const tag = image.tag === undefined ? "" : `:${image.tag}`;
  const digest = image.digest === undefined ? "" : `@${image.digest}`;
  return `${image.registry}/${image.repository}${tag}${digest}`;
}

/** Whether the image is the built-in one. */
export function isHostImage(image: ImageReference): boolean {
  return image.registry === hostImage.registry && image.repository === hostImage.repository;
}

function splitReference(text: string): { name: string; tag: string | undefined; digest: string | undefined } {
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
