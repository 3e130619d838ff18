import { execFileSync } from "node:child_process";
import path from "node:path";
import { goEnvironment, readSetup, rootDir } from "../../scripts/checkout.ts";
import type { Surface } from "./surface.ts";

/** The names that the Go SDK exports, with their types, as `go doc` shows them. */
export function goSurface(): Surface {
  const options = { cwd: path.join(rootDir, "sdks/go"), env: goEnvironment({}), encoding: "utf8" } as const;
  return parseGoDoc(execFileSync(readSetup().go, ["doc", "-all", "."], options));
}

/** Reads the output of `go doc -all`: declarations begin a line, fields are indented by one tab. */
export function parseGoDoc(text: string): Surface {
  const found = new Map<string, string>();
  let struct: string | undefined;
  let isConstants = false;
  for (const line of text.split("\n")) {
    const declared = /^type (\w+) (struct|interface)? ?/.exec(line);
    if (declared !== null) {
      found.set(declared[1] ?? "", "");
      struct = line.endsWith("{") && declared[2] === "struct" ? declared[1] : undefined;
    } else if (line.startsWith("const (")) isConstants = true;
    else if (line.startsWith("}") || line.startsWith(")")) {
      struct = undefined;
      isConstants = false;
    } else if (line.startsWith("func ")) readFunction(line, found);
    else if (line.startsWith("const ")) found.set(line.split(" ")[1] ?? "", "");
    else if (/^\t[A-Z]/.test(line) && isConstants) found.set(line.trim().split(" ")[0] ?? "", "");
    else if (/^\t[A-Z]/.test(line) && struct !== undefined) readField(line, struct, found);
  }
  return found;
}

function readFunction(line: string, found: Map<string, string>): void {
  const parsed = /^func (?:\(\w+ \*?(\w+)\) )?(\w+)\((.*)$/.exec(line);
  if (parsed === null) throw new Error(`go doc printed a function of another form: ${line}`);
  const [, receiver, name = "", rest = ""] = parsed;
  found.set(receiver === undefined ? name : `${receiver}.${name}`, resultOf(rest));
}

/** What comes behind the parenthesis that closes the parameters, without the error. */
function resultOf(rest: string): string {
  let depth = 1;
  let at = 0;
  for (; depth > 0 && at < rest.length; at += 1) depth += rest[at] === "(" ? 1 : rest[at] === ")" ? -1 : 0;
  const result = rest.slice(at).trim();
  return result.replace(/^\((.*)\)$/, "$1").replace(/(^|, )error$/, "");
}

function readField(line: string, struct: string, found: Map<string, string>): void {
  const [declaration = ""] = line.trim().replace(/`.*`/, "").split("//");
  const parsed = /^(\w+(?:, \w+)*)\s+(.+)$/.exec(declaration.trim());
  // A field without a name of its own is an embedded type.
  if (parsed === null) found.set(`${struct}.${declaration.trim()}`, declaration.trim());
  else for (const name of (parsed[1] ?? "").split(", ")) found.set(`${struct}.${name}`, (parsed[2] ?? "").trim());
}
