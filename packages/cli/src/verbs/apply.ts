import type { KubeObject } from "@agent-sandbox/api/meta";
import { parseApiVersion, type Resource } from "@agent-sandbox/api/resource";
import type { Engine } from "@agent-sandbox/sdk";
import { asSandboxError } from "@agent-sandbox/sdk/errors/api-failure";
import { usageError } from "../cli-error.ts";
import { type Context, type EngineFlags, openEngine, type Verb } from "../context.ts";
import { awaitTranslation, isAlias } from "../objects/aliases.ts";
import { kindOf, kindOfObject } from "../objects/kinds.ts";
import type { Manifest } from "../objects/manifest.ts";
import { readManifests } from "../objects/manifests.ts";
import { formatValue } from "../output/format-value.ts";

interface ApplyFlags extends EngineFlags {
  readonly filename?: string[];
  readonly dryRun?: boolean;
  readonly force?: boolean;
  readonly output?: "json" | "yaml" | "name" | "wide";
}

/** Creates or changes objects by server-side apply. */
export const applyVerb: Verb = async (context, _args, flags) => {
  const options = flags as ApplyFlags;
  if (options.filename === undefined)
    throw usageError("which file?", "Write: agent-sandbox apply -f FILE, or -f - for standard input");
  const manifests = await readManifests(context, options.filename);
  if (manifests.length === 0) throw usageError(`no objects in ${options.filename.join(", ")}`);
  const engine = await openEngine(options);
  for (const manifest of manifests) {
    const applied = await applyOne(engine, manifest, options);
    const { object } = applied;
    const resource = await realResource(context, engine, { ...applied, source: manifest.source }, options);
    if (options.output === "json" || options.output === "yaml")
      context.stdout.write(await formatValue(object, options.output));
    else
      context.stdout.write(
        `${resource.resource}/${object.metadata.name ?? ""}${options.output === "name" ? "" : " applied"}${options.dryRun === true ? " (dry run)" : ""}\n`,
      );
  }
};

/** What the object is called from now on: an alias by the real object that the engine made of it. */
async function realResource(
  context: Context,
  engine: Engine,
  { resource, object, source }: { resource: Resource<KubeObject>; object: KubeObject; source: string },
  { dryRun }: ApplyFlags,
): Promise<Resource<KubeObject>> {
  if (dryRun === true || !isAlias(resource)) return resource;
  const outcome = await awaitTranslation(engine, resource, object, context.signal);
  context.stderr.write(`warning: ${source}: ${object.kind} of ${object.apiVersion} is deprecated; ${outcome}\n`);
  return kindOf(object.kind).resource;
}

async function applyOne(engine: Engine, { source, object }: Manifest, { dryRun, force }: ApplyFlags) {
  const resource = await resourceOf(engine, object, source);
  const { name } = object.metadata;
  if (name === "") throw usageError(`${source}: ${object.kind} has no metadata.name`);
  const namespace = object.metadata.namespace ?? engine.namespace;
  const key = { name, ...(resource.namespaced && { namespace }) };
  const body = resource.namespaced ? { ...object, metadata: { ...object.metadata, namespace } } : object;
  try {
    const applied = await engine.client.patch(
      resource,
      key,
      { type: "apply", body },
      {
        fieldManager: "agent-sandbox",
        fieldValidation: "Strict",
        ...(dryRun === true && { dryRun: true }),
        ...(force === true && { force: true }),
      },
    );
    return { resource, object: applied };
  } catch (error) {
    throw asSandboxError(`${source}: apply ${resource.resource}/${name}`, error);
  }
}

interface ApiResourceList {
  readonly resources?: readonly { readonly name: string; readonly kind: string; readonly namespaced: boolean }[];
}

/** The resource of an object's kind: known, or asked of the server, which may have CRDs of the user's. */
async function resourceOf(
  { client }: Engine,
  { apiVersion, kind }: KubeObject,
  source: string,
): Promise<Resource<KubeObject>> {
  const { group, version } = parseApiVersion(apiVersion);
  const known = kindOfObject({ apiVersion, kind })?.resource;
  if (known !== undefined) return { ...known, version };
  const path = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
  const list = await client.raw<ApiResourceList>({ method: "GET", path }).catch((): ApiResourceList => ({}));
  const found = list.resources?.find((candidate) => candidate.kind === kind && !candidate.name.includes("/"));
  if (found === undefined) throw usageError(`${source}: this engine has no kind ${kind} in ${apiVersion}`);
  return { group, version, kind, resource: found.name, namespaced: found.namespaced };
}
