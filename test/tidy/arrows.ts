import { importsIn, isTestCode } from "./imports.ts";
import { apiserverFolder, apiserverLayers } from "./layers.ts";

const apiserverRows = apiserverLayers.flatMap(({ folders }) => Object.entries(folders));

/** What a folder may import besides itself; an arrow that is not here is an error. Keys are matched longest first. */
const arrows: Readonly<Record<string, readonly string[]>> = {
  "packages/api": [],
  "packages/kube": ["packages/api"],
  "packages/sdk": ["packages/kube", "packages/api"],
  "packages/cli": [
    "packages/sdk",
    "packages/kube",
    "packages/api",
    "packages/server/src/main",
    "packages/server/src/installation",
    "packages/server/src/backup",
  ],
  "packages/server/src/telemetry": ["packages/api"],
  "packages/server/src/durable": [],
  "packages/server/src/installation": [],
  "packages/server/src/store": [],
  "packages/server/src/backup": [],
  // The files beside the layers wire them together and may import them all.
  [apiserverFolder]: [
    ...apiserverRows.map(([name]) => folderNamed(name)),
    "packages/server/src/store",
    "packages/kube",
  ],
  ...Object.fromEntries(apiserverRows.map(([name, targets]) => [folderNamed(name), targets.map(folderNamed)])),
  "packages/server/src/controllers": ["packages/kube"],
  "packages/server/src/standins": ["packages/kube"],
  "packages/server/src/node/host": ["packages/kube"],
  "packages/server/src/node": ["packages/kube", "packages/server/src/node/host"],
  "packages/server/src/router": ["packages/kube"],
  "packages/server/src/mcp": ["packages/sdk"],
  "packages/server/src/main": ["packages/server/src", "packages/kube", "packages/sdk"],
};
const everyoneInServer = [
  "packages/api",
  "packages/server/src/telemetry",
  "packages/server/src/durable",
  "packages/server/src/installation",
];
const folders = Object.keys(arrows).sort((a, b) => b.length - a.length);

function folderNamed(name: string): string {
  return name.startsWith("packages/") ? name : `${apiserverFolder}/${name}`;
}

/** The imports of one file that no arrow allows, as readable lines. Tests, scripts and benchmarks may import anything. */
export function findForbiddenArrows(file: string, text: string): string[] {
  const from = folderOf(file);
  if (from === undefined || isTestCode(file)) return [];
  if (from === apiserverFolder && file.slice(from.length + 1).includes("/")) return [`${file} is in no layer`];
  const allowed = [from, ...(arrows[from] ?? []), ...(from.startsWith("packages/server/") ? everyoneInServer : [])];
  return importsIn(file, text)
    .filter((target) => !allowed.some((folder) => isBelow(target, folder) && isNearest(target, folder, allowed)))
    .map((target) => `${file} imports ${target}`);
}

/** The arrows between layers of the API server that no import follows, given all files with their texts. */
export function findUnusedArrows(files: readonly string[], read: (file: string) => string): string[] {
  const used = new Set<string>();
  for (const file of files.filter((each) => each.startsWith(`${apiserverFolder}/`) && !isTestCode(each))) {
    for (const target of importsIn(file, read(file))) used.add(`${folderOf(file)} → ${folderOf(target)}`);
  }
  const drawn = apiserverRows.flatMap(([name, targets]) =>
    targets.map((target) => `${folderNamed(name)} → ${folderNamed(target)}`),
  );
  return drawn.filter((arrow) => !used.has(arrow));
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
