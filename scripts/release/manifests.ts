import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseAllDocuments, stringify } from "yaml";
import { rootDir } from "../checkout.ts";
import { deployFiles } from "../deploy-files.ts";

/** How the files of a release are written. */
export interface ManifestOptions {
  /** The image that both Deployments run; default that of deploy/kubernetes. */
  readonly image?: string;
}

/** As much of an object as decides where it goes. */
interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec?: { template?: { spec: { containers: Container[] } } };
}

interface Container {
  image: string;
  args: string[];
}

/** What the controller is given for templates, pools and claims. */
const extensionsFlag = "--extensions";

/**
 * The manifests of a release by file name, as the reference splits and names them. `manifest.yaml` installs Sandboxes alone, `extensions.yaml` on top
 * of it templates, pools and claims, with the controller's Deployment once more; `sandbox.yaml` is the first under the name of later
 * releases, and `sandbox-with-extensions.yaml` is both in one.
 */
export function releaseManifests(options: ManifestOptions = {}): Map<string, string> {
  const all = readManifests(options);
  const core = print(all.filter((object) => !isOfExtensions(object)).map(withoutExtensions));
  return new Map([
    ["manifest.yaml", core],
    ["sandbox.yaml", core],
    ["extensions.yaml", print(all.filter((object) => isOfExtensions(object) || isController(object)))],
    ["sandbox-with-extensions.yaml", print(all)],
  ]);
}

/** Writes the manifests of a release into a directory and returns their names. */
export function writeManifests(directory: string, options: ManifestOptions = {}): string[] {
  mkdirSync(directory, { recursive: true });
  const manifests = releaseManifests(options);
  for (const [name, text] of manifests) writeFileSync(path.join(directory, name), text);
  return [...manifests.keys()];
}

/** Writes the Helm chart into a directory, with files in place of the links into spec/crds that it has in the repository. */
export function writeChart(directory: string): void {
  const source = path.join(rootDir, "deploy/chart");
  for (const entry of readdirSync(source, { recursive: true, encoding: "utf8" })) {
    if (statSync(path.join(source, entry)).isDirectory()) continue;
    mkdirSync(path.dirname(path.join(directory, entry)), { recursive: true });
    writeFileSync(path.join(directory, entry), readFileSync(path.join(source, entry)));
  }
}

function readManifests({ image }: ManifestOptions): Manifest[] {
  const [namespace = [], ...rest] = deployFiles().map((file) => readFile(`deploy/kubernetes/${file}.yaml`));
  const crds = readdirSync(path.join(rootDir, "spec/crds")).filter((file) => file.endsWith(".yaml"));
  const objects = [...namespace, ...crds.sort().flatMap((file) => readFile(`spec/crds/${file}`)), ...rest.flat()];
  if (image === undefined) return objects;
  for (const container of objects.flatMap(({ spec }) => spec?.template?.spec.containers ?? [])) container.image = image;
  return objects;
}

function readFile(file: string): Manifest[] {
  const text = readFileSync(path.join(rootDir, file), "utf8");
  return parseAllDocuments(text).map((document) => document.toJS() as Manifest);
}

/** Aliases are translated by the same controllers, so that they come with them. */
function isOfExtensions({ kind, metadata }: Manifest): boolean {
  if (kind === "CustomResourceDefinition") return /aliases\.|\.extensions\./.test(metadata.name);
  return metadata.name.endsWith("-extensions");
}

function isController({ kind, metadata }: Manifest): boolean {
  return kind === "Deployment" && metadata.name === "agent-sandbox-controller";
}

function withoutExtensions(object: Manifest): Manifest {
  if (!isController(object)) return object;
  const copy = structuredClone(object);
  for (const container of copy.spec?.template?.spec.containers ?? [])
    container.args = container.args.filter((arg) => arg !== extensionsFlag);
  return copy;
}

function print(objects: readonly Manifest[]): string {
  return objects.map((object) => stringify(object, { lineWidth: 0, aliasDuplicateObjects: false })).join("---\n");
}
