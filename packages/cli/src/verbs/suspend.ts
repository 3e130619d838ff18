import { type Context, type EngineFlags, type Verb } from "../context.ts";
import { findSandbox } from "../objects/find-sandbox.ts";
import { Progress } from "../output/progress.ts";

/** Puts sandboxes to sleep. */
export const suspendVerb: Verb = async (context, names, flags) => {
  const { hold = false, ...engine } = flags as EngineFlags & { hold?: boolean };
  for (const name of names) {
    using progress = new Progress(context);
    const sandbox = await findSandbox(name, engine, context);
    progress.show(`suspending ${name}`);
    await sandbox.suspend({ hold, signal: context.signal });
    progress.clear();
    say(context, `sandboxes/${sandbox.name} suspended`);
  }
};

/** Wakes sandboxes. */
export const resumeVerb: Verb = async (context, names, flags) => {
  const { cold = false, ...engine } = flags as EngineFlags & { cold?: boolean };
  for (const name of names) {
    using progress = new Progress(context);
    const sandbox = await findSandbox(name, engine, context);
    progress.show(`resuming ${name}`);
    await sandbox.resume({ cold, signal: context.signal, onProgress: (text) => progress.show(text) });
    progress.clear();
    say(context, `sandboxes/${sandbox.name} resumed`);
  }
};

function say({ stdout }: Context, text: string): void {
  stdout.write(`${text}\n`);
}
