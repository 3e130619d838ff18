import { servicesOf } from "@agent-sandbox/api/services";
import { type EngineFlags, required, type Verb } from "../context.ts";
import { findSandbox } from "../objects/find-sandbox.ts";
import { formatTable } from "../output/table.ts";

/** Lists what is kept running in a sandbox. */
export const serviceLsVerb: Verb = async (context, args, flags) => {
  const sandbox = await findSandbox(required(args, 0, "sandbox"), flags as EngineFlags, context);
  const services = servicesOf((await sandbox.object()).metadata);
  context.stdout.write(
    formatTable(
      ["NAME", "COMMAND"],
      services.map(({ name, command }) => [name, command.join(" ")]),
    ),
  );
};

/** Ends services for good. */
export const serviceRmVerb: Verb = async (context, args, flags) => {
  const sandbox = await findSandbox(required(args, 0, "sandbox"), flags as EngineFlags, context);
  required(args, 1, "service");
  for (const name of args.slice(1)) {
    await sandbox.removeService(name, { signal: context.signal });
    context.stdout.write(`service ${name} of ${sandbox.name} removed\n`);
  }
};
