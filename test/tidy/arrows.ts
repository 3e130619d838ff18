import path from "node:path";

/** What a folder may import besides itself; an arrow that is not here is an error. Keys are matched longest first. */
const arrows: Readonly<Record<string, readonly string[]>> = {
  "packages/api": [],
  "packages/kube": ["packages/api"],
  "packages/sdk": ["packages/kube", "packages/api"],
  "packages/cli": ["packages/sdk", "packages/kube", "packages/api", "packages/server/src/main"],
  "packages/server/src/telemetry": ["packages/api"],
  "packages/server/src/durable": [],
  "packages/server/src/store": [],
  "packages/server/src/apiserver": ["packages/server/src/store", "packages/kube"],
  "packages/server/src/controllers": ["packages/kube"],
  "packages/server/src/standins": ["packages/kube"],
  "packages/server/src/node/host": ["packages/kube"],
  "packages/server/src/node": ["packages/kube", "packages/server/src/node/host"],
  "packages/server/src/router": ["packages/kube"],
  "packages/server/src/mcp": ["packages/sdk"],
  "packages/server/src/main": ["packages/server/src", "packages/kube", "packages/sdk"],
};
const everyoneInServer = ["packages/api", "packages/server/src/telemetry", "packages/server/src/durable"];
const folders = Object.keys(arrows).sort((a, b) => b.length - a.length);

/** The imports of one file that no arrow allows, as readable lines. Tests, scripts and benchmarks may import anything. */
export function findForbiddenArrows(file: string, text: string): string[] {
  const from = folderOf(file);
  if (from === undefined || isTestCode(file)) return [];
  const allowed = [from, ...(arrows[from] ?? []), ...(from.startsWith("packages/server/") ? everyoneInServer : [])];
  return importsOf(text)
    .map((specifier) => resolve(file, specifier))
    .filter((target) => target !== undefined)
    .filter((target) => !allowed.some((folder) => isBelow(target, folder) && isNearest(target, folder, allowed)))
    .map((target) => `${file} imports ${target}`);
}

function isTestCode(file: string): boolean {
  return file.endsWith(".test.ts") || /\/testing\//.test(file);
}

function folderOf(file: string): string | undefined {
  return folders.find((folder) => isBelow(file, folder));
}

function isBelow(file: string, folder: string): boolean {
  return file === folder || file.startsWith(`${folder}/`);
}

/** node may not reach into apiserver only because both lie below packages/server: the folder that owns the target must be allowed itself. */
function isNearest(target: string, folder: string, allowed: readonly string[]): boolean {
  const owner = folderOf(target);
  return owner === undefined || allowed.includes(owner) || folder === "packages/server/src";
}

function importsOf(text: string): string[] {
  return [
    ...text.matchAll(
      /(?:^|\n)\s*(?:import|export)\b[^"';]*?from\s*"([^"]+)"|import\(\s*"([^"]+)"\s*\)|(?:^|\n)import\s+"([^"]+)"/g,
    ),
  ].map((match) => match[1] ?? match[2] ?? match[3] ?? "");
}

function resolve(file: string, specifier: string): string | undefined {
  if (specifier.startsWith(".")) return path.posix.join(path.posix.dirname(file), specifier);
  const own = /^@agent-sandbox\/([^/]+)(?:\/(.*))?$/.exec(specifier);
  return own === null ? undefined : `packages/${own[1]}/src/${own[2] ?? "index.ts"}`;
}
