import type { Layout } from "./layout.ts";
import { undoRestore } from "./store-restore.ts";
import { type Command, readSwitchFailure, type SwitchOrder, writeSwitchFailure } from "./switch-order.ts";
import { pointLink } from "./upgrade/install-place.ts";

/** Says why a switch is undone, for the command that asked for it; what was said first stays. Preconditions: the caller is root. */
export function noteFailure(layout: Layout, { version }: SwitchOrder, message: string): void {
  if (readSwitchFailure(layout) === undefined) writeSwitchFailure(layout, { version, message });
}

/**
 * Gives store and link back to the version before, at whatever step an earlier try ended. Preconditions: the caller is root, and no process
 * of the engine runs.
 */
export async function undoSwitch(layout: Layout, { kept, link }: SwitchOrder): Promise<void> {
  // Before the link: on the store of the other version, the one before would delete the layers of every sandbox made since.
  if (kept !== undefined) await undoRestore(layout, { kept: kept.name, of: kept.of });
  pointLink(link.path, link.before);
}

/** Becomes another program; the pid stays. */
export function becomeProgram({ program, args }: Command, env: NodeJS.ProcessEnv): never {
  if (process.execve === undefined) throw new Error("this Node cannot replace a process by another");
  return process.execve(program, [program, ...args], env);
}
