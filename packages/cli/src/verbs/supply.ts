import { blueprintOf } from "@agent-sandbox/api/blueprint";
import type { SandboxTemplate } from "@agent-sandbox/api/kinds.gen";
import { sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api/resource";
import type { Engine } from "@agent-sandbox/sdk";
import type { CreateOptions } from "@agent-sandbox/sdk/control/create-options";
import { type ObjectContext, sandboxObject } from "@agent-sandbox/sdk/control/sandbox-object";
import { apiCall } from "@agent-sandbox/sdk/errors/api-failure";
import { usageError } from "../cli-error.ts";
import { type EngineFlags, openEngine, required, type Verb } from "../context.ts";
import { kindOf } from "../objects/kinds.ts";
import { type SleepFlags, sleepOptions } from "../sleep-options.ts";
import { deleteVerb } from "./delete.ts";
import { type GetFlags, getObjects } from "./get.ts";

const write = { fieldManager: "agent-sandbox", fieldValidation: "Strict" } as const;

/** Lists pools. */
export const poolLsVerb: Verb = (context, _args, flags) => getObjects(context, kindOf("pools"), [], flags as GetFlags);

/** Lists templates. */
export const templateLsVerb: Verb = (context, _args, flags) =>
  getObjects(context, kindOf("templates"), [], flags as GetFlags);

/** Deletes pools. */
export const poolRmVerb: Verb = (context, names, flags) => deleteVerb(context, ["pools", ...names], flags);

/** Deletes templates. */
export const templateRmVerb: Verb = (context, names, flags) => deleteVerb(context, ["templates", ...names], flags);

/** Makes a template from an image. */
export const templateCreateVerb: Verb<EngineFlags & TemplateFlags> = async (context, args, flags) => {
  const options = templateOptions(flags);
  const engine = await openEngine(flags);
  const name = required(args, 0, "name");
  await createTemplate(engine, name, options);
  context.stdout.write(`sandboxtemplates/${name} created\n`);
};

interface PoolFlags extends EngineFlags, TemplateFlags {
  readonly template?: string;
  readonly size: string;
}

/** Makes a pool, and a template for it where an image is given. */
export const poolCreateVerb: Verb<PoolFlags> = async (context, args, flags) => {
  const { image, template, size } = flags;
  const name = required(args, 0, "name");
  const replicas = parseSize(size);
  if (image !== undefined && template !== undefined) throw usageError("--image and --template exclude each other");
  const options = templateOptions(flags);
  if (template !== undefined && Object.keys(options).length > 0)
    throw usageError("--template excludes flags about sleep and recovery: the template says when its sandboxes sleep");
  const engine = await openEngine(flags);
  if (template === undefined) await createTemplate(engine, name, options);
  const pool = {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxWarmPool",
    metadata: { name, namespace: engine.namespace },
    spec: { replicas, sandboxTemplateRef: { name: template ?? name } },
  } as const;
  await apiCall(`create pool ${name}`, () => engine.client.create(sandboxWarmPools, pool, write));
  context.stdout.write(`sandboxwarmpools/${name} created\n`);
};

/** Changes how many members of a pool wait. */
export const poolScaleVerb: Verb = async (context, args, flags) => {
  const name = required(args, 0, "name");
  const replicas = parseSize(required(args, 1, "size"));
  const { client, namespace } = await openEngine(flags as EngineFlags);
  const patch = { type: "merge", body: { spec: { replicas } } } as const;
  await apiCall(`scale pool ${name}`, () => client.patch(sandboxWarmPools, { namespace, name }, patch, write));
  context.stdout.write(`sandboxwarmpools/${name} scaled to ${replicas}\n`);
};

interface TemplateFlags extends SleepFlags {
  readonly image?: string | undefined;
}

function templateOptions({ image, ...rest }: TemplateFlags): CreateOptions {
  return { ...(image !== undefined && { image }), ...sleepOptions(rest) };
}

/** The template whose sandboxes are what the options would make one of. */
export function templateObject(options: CreateOptions, context: ObjectContext): SandboxTemplate {
  const { name, namespace } = context;
  return {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: "SandboxTemplate",
    metadata: { name, namespace },
    spec: blueprintOf(sandboxObject(options, context)),
  };
}

async function createTemplate(engine: Engine, name: string, options: CreateOptions): Promise<void> {
  const { namespace } = engine;
  const template = templateObject(options, { name, namespace, nowMs: 0, isOwnEngine: await engine.isOwn() });
  await apiCall(`create template ${name}`, () => engine.client.create(sandboxTemplates, template, write));
}

function parseSize(text: string): number {
  if (!/^\d+$/.test(text)) throw usageError(`'${text}' is not a number of sandboxes`);
  return Number(text);
}
