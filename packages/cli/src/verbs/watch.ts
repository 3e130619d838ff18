import { asSandboxError } from "@agent-sandbox/sdk/errors/api-failure";
import { type Context, openEngine, type Verb } from "../context.ts";
import { tableOf } from "../output/print-objects.ts";
import { type GetFlags, readTarget } from "./get.ts";

/** Follows changes until it is interrupted. */
export const watchVerb: Verb = async (context, args, flags) => {
  const { kind, names } = readTarget(args);
  const options = flags as GetFlags;
  const { client, namespace } = await openEngine(options);
  const { resource } = kind;
  const select = {
    ...(resource.namespaced && options.allNamespaces !== true && { namespace }),
    ...(options.selector !== undefined && { labelSelector: options.selector }),
    ...(names[0] !== undefined && { fieldSelector: `metadata.name=${names[0]}` }),
    signal: context.signal,
  };
  try {
    let isFirst = true;
    // A server ends watches now and then; the next one begins with the present state.
    while (!context.signal.aborted) {
      for await (const event of client.watch(resource, select)) {
        if (event.type === "BOOKMARK" || event.type === "ERROR") continue;
        if (options.output === "json") context.stdout.write(`${JSON.stringify(event)}\n`);
        else if (options.output === "name")
          context.stdout.write(`${event.type} ${resource.resource}/${event.object.metadata.name ?? ""}\n`);
        else
          printRow(
            context,
            tableOf(context, kind, [event.object], { ...(options.output === "wide" && { output: "wide" }) }),
            event.type,
            isFirst,
          );
        isFirst = false;
      }
    }
  } catch (error) {
    throw asSandboxError(`watch ${resource.resource}`, error);
  }
};

function printRow({ stdout }: Context, table: string, type: string, isFirst: boolean): void {
  const [titles = "", row = ""] = table.split("\n");
  if (isFirst) stdout.write(`${"EVENT".padEnd(9)} ${titles}\n`);
  stdout.write(`${type.padEnd(9)} ${row}\n`);
}
