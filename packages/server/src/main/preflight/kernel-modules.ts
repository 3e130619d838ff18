import { existsSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";

/** Where the modules of the running kernel lie; most containers have no such directory. */
export const modulesDir = `/lib/modules/${os.release()}`;

/** Lists with one module per line: `kernel/fs/overlayfs/overlay.ko`, in modules.dep with the compression's ending, a colon and what it needs. */
const lists = ["modules.builtin", "modules.dep"];

/** Whether the running kernel has a module, in itself or as a file to be loaded. `unknown` where no list can be read. */
export function moduleState(name: string, dir = modulesDir): "available" | "missing" | "unknown" {
  const readable = lists.map((list) => path.join(dir, list)).filter((file) => existsSync(file));
  if (readable.length === 0) return "unknown";
  const line = new RegExp(`(?:^|/)${name}\\.ko(?:\\.\\w+)?(?::|$)`, "m");
  return readable.some((file) => line.test(readFileSync(file, "utf8"))) ? "available" : "missing";
}
