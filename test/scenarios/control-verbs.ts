import { sandboxTemplates, sandboxWarmPools } from "@agent-sandbox/api";
import { type Command, type CreateOptions, Sandbox, SandboxError, type SandboxState } from "@agent-sandbox/sdk";
import { type Fields, text } from "./matching.ts";
import type { Step, Verb, World } from "./world.ts";

const kindOf: Fields = { sandboxtemplates: "SandboxTemplate", sandboxwarmpools: "SandboxWarmPool" };

function ms(step: Step, key: string): number | undefined {
  const seconds = step[key];
  return typeof seconds === "number" ? seconds * 1000 : undefined;
}

async function createOptions(world: World, step: Step): Promise<CreateOptions> {
  const { name, image, env, labels, workdir, entrypoint, cpu, memory, volumes, restartPolicy, fromSnapshot } =
    step as CreateOptions & {
      entrypoint?: string[];
      restartPolicy?: string;
    };
  const [ttlMs, readyTimeoutMs] = [ms(step, "ttlSeconds"), ms(step, "readyTimeoutSeconds")];
  return {
    engine: step["throughProxy"] === true ? await world.proxiedEngine() : world.engine,
    ...(name !== undefined && { name }),
    ...(image !== undefined && { image }),
    ...(env !== undefined && { env }),
    ...(labels !== undefined && { labels }),
    ...(workdir !== undefined && { workdir }),
    ...(entrypoint !== undefined && { command: entrypoint }),
    ...(cpu !== undefined && { cpu }),
    ...(memory !== undefined && { memory }),
    ...(volumes !== undefined && { volumes }),
    ...(fromSnapshot !== undefined && { fromSnapshot }),
    ...(restartPolicy !== undefined && { podTemplate: { spec: { restartPolicy } } }),
    ...(ttlMs !== undefined && { ttlMs }),
    ...(readyTimeoutMs !== undefined && { readyTimeoutMs }),
  };
}

function keepMade(world: World, step: Step, box: Sandbox): Fields {
  world.made.push(box);
  return world.keep(step, box);
}

async function list({ engine }: World, step: Step): Promise<Fields> {
  const labels = Object.entries(step["labels"] as Record<string, string>);
  const names: string[] = [];
  for await (const box of Sandbox.list({ engine, labelSelector: labels.map((pair) => pair.join("=")).join(",") })) {
    names.push(box.name);
    await box.close();
  }
  return { names };
}

async function info(world: World, step: Step): Promise<Fields> {
  const { state, image, shutdownAt, message, reason } = await world.box(step).info();
  return { state, image, message, reason, expires: shutdownAt !== undefined };
}

async function logs(world: World, step: Step): Promise<Fields> {
  let seen = "";
  for await (const chunk of world.box(step).logs({ follow: true })) {
    seen += Buffer.from(chunk).toString();
    if (seen.includes(text(step, "untilText"))) return { text: seen };
  }
  throw new Error(`the log ended: ${seen}`);
}

async function apply({ engine }: World, step: Step): Promise<Fields> {
  const resource = text(step, "resource");
  const object = {
    apiVersion: "extensions.agents.x-k8s.io/v1beta1",
    kind: kindOf[resource],
    ...(step["object"] as Fields),
  };
  const path = `/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/${engine.namespace}/${resource}`;
  await engine.client.raw({ method: "POST", path, body: object });
  return {};
}

async function fork(world: World, step: Step): Promise<Fields> {
  const results = await world.box(step).fork(step["count"] as number, { name: text(step, "name") });
  const names = results.map((result, index) => {
    if (result instanceof SandboxError) throw result;
    keepMade(world, { ...step, as: `${text(step, "as")}${index + 1}` }, result);
    return result.name;
  });
  return { names };
}

async function snapshot(world: World, step: Step): Promise<Fields> {
  const { state, memorySizeBytes } = await world
    .box(step)
    .snapshot({ name: text(step, "name"), memory: step["withMemory"] !== false });
  return { state, hasMemory: memorySizeBytes !== undefined };
}

async function removeObject({ engine }: World, step: Step): Promise<Fields> {
  const resource = step["resource"] === "sandboxtemplates" ? sandboxTemplates : sandboxWarmPools;
  await engine.client.delete<never>(resource as never, { namespace: engine.namespace, name: text(step, "name") });
  return {};
}

/** Verbs about sandboxes themselves. */
export const controlVerbs: Readonly<Record<string, Verb>> = {
  create: async (world, step) =>
    keepMade(world, step, await Sandbox.create(await createOptions(world, step)).catch(withCode)),
  open: async (world, step) =>
    keepMade(world, step, await Sandbox.open(text(step, "name"), await createOptions(world, step))),
  get: async (world, step) => world.keep(step, await Sandbox.get(text(step, "name"), { engine: world.engine })),
  claim: async (world, step) => {
    const { engine, name, readyTimeoutMs } = await createOptions(world, step);
    const options = {
      ...(name !== undefined && { name }),
      ...(engine !== undefined && { engine }),
      ...(readyTimeoutMs !== undefined && { readyTimeoutMs }),
    };
    return keepMade(world, step, await Sandbox.claim(text(step, "pool"), options));
  },
  handle: async (world, step) => {
    const json = JSON.parse(JSON.stringify(world.box(step))) as ReturnType<Sandbox["toJSON"]>;
    return world.keep(step, await Sandbox.from(json, { engine: world.engine }));
  },
  list,
  info,
  delete: async (world, step) =>
    world
      .box(step)
      .delete({ wait: step["wait"] === true })
      .then(nothing),
  suspend: async (world, step) =>
    world
      .box(step)
      .suspend({ hold: step["hold"] === true })
      .then(nothing),
  resume: async (world, step) => world.box(step).resume().then(nothing),
  fork,
  snapshot,
  "delete-snapshot": async ({ engine }, step) => Sandbox.deleteSnapshot(text(step, "name"), { engine }).then(nothing),
  "set-timeout": async (world, step) => world.box(step).setTimeout(ms(step, "ttlSeconds")).then(nothing),
  extend: async (world, step) => {
    const before = await world.box(step).info();
    const end = await world.box(step).extend(ms(step, "bySeconds") ?? 0);
    return { laterSeconds: (end.getTime() - (before.shutdownAt?.getTime() ?? 0)) / 1000 };
  },
  logs,
  "await-state": async (world, step) => {
    const { state, reason } = await world.box(step).waitFor(text(step, "state") as SandboxState);
    return { state, reason };
  },
  ports: async (world, step) => {
    const open = await world.box(step).ports();
    return { ports: open.map(({ port }) => port), addresses: open.flatMap(({ addresses }) => addresses) };
  },
  "start-service": async (world, step) =>
    world
      .box(step)
      .startService(text(step, "name"), step["command"] as Command)
      .then(nothing),
  "remove-service": async (world, step) => world.box(step).removeService(text(step, "name")).then(nothing),
  "open-link": async (world, step) => {
    const response = await fetch(await world.box(step).url(Number(step["port"])));
    return { status: response.status, text: await response.text() };
  },
  metrics: async (world, step) => ({ names: Object.keys(await world.box(step).metrics()) }),
  apply,
  "remove-object": removeObject,
};

function nothing(): Fields {
  return {};
}

function withCode(error: unknown): never {
  if (error instanceof SandboxError) throw error;
  throw new Error("create failed without a SandboxError", { cause: error });
}
