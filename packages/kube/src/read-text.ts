/**
 * A small file of this machine as text. Read at once, because loading `fs/promises` takes longer than reading all that a command
 * has to read before it can speak to its server.
 */
export function readText(path: string): string {
  return process.getBuiltinModule("node:fs").readFileSync(path, "utf8");
}
