import { execFileSync } from "node:child_process";
import { cpSync, existsSync, globSync, mkdirSync, realpathSync } from "node:fs";
import path from "node:path";
import { readDevDir, readSetup, rootDir } from "../../scripts/checkout.ts";
import type { EmptyRoot, Lent } from "./empty-root.ts";

const tools = path.join(readDevDir("package-tools"), "node_modules");

/** Set-up brings Deno on x64 alone: its package for arm64 is not to be had from every registry. Where it is missing on x64, no root opens. */
export const hasDeno = process.arch === "x64";
const bunArchitecture = process.arch === "arm64" ? "aarch64" : process.arch;

/** Where a root has the runtimes that are lent to it. */
export const runtimes = {
  /** The oldest Node that the packages promise to run on. */
  node20: "/opt/node20/bin/node",
  node24: "/opt/node24/bin/node",
  npm: "/opt/npm/bin/npm-cli.js",
  npx: "/opt/npm/bin/npx-cli.js",
  bun: "/opt/bun/bin/bun",
  deno: "/opt/deno/deno",
  go: "/opt/go/bin/go",
  goModules: "/opt/gomodules",
  goCache: "/opt/gocache",
  pip: "/opt/pip/pip",
} as const;

interface Python {
  readonly program: string;
  readonly stdlib: string;
}

/** The interpreter that the environment of the checks was made from. */
function basePython(): Python {
  const say = "import json, sys, sysconfig; print(json.dumps([sys._base_executable, sysconfig.get_paths()['stdlib']]))";
  const printed = execFileSync(path.join(readDevDir("python"), "bin/python"), ["-c", say], { encoding: "utf8" });
  const [program = "", stdlib = ""] = JSON.parse(printed) as string[];
  return { program: realpathSync(program), stdlib };
}

/** What a root is lent: the languages and their package managers, nothing of the checkout. */
export function lentRuntimes(): Lent[] {
  const python = readDevDir("python");
  const [sitePackages = ""] = globSync("lib/python3.*/site-packages", { cwd: python });
  const [goRoot = "", goCache = ""] = execFileSync(readSetup().go, ["env", "GOROOT", "GOCACHE"], {
    encoding: "utf8",
    env: { ...process.env, GOTOOLCHAIN: "local" },
  }).split("\n");
  const { stdlib } = basePython();
  return [
    { from: path.join(tools, `node-20-linux-${process.arch}`), to: "/opt/node20" },
    { from: path.join(rootDir, "node_modules", `node-linux-${process.arch}`), to: "/opt/node24" },
    { from: path.join(tools, "npm"), to: "/opt/npm" },
    { from: path.join(tools, "@oven", `bun-linux-${bunArchitecture}`), to: "/opt/bun" },
    ...(hasDeno ? [{ from: path.join(tools, "@deno/linux-x64-glibc"), to: "/opt/deno" }] : []),
    { from: goRoot, to: "/opt/go" },
    // Compiled packages of the standard library: making them anew takes longer than the whole suite.
    { from: goCache, to: runtimes.goCache, isWritable: true },
    { from: path.join(readDevDir("gomodules"), "cache/download"), to: runtimes.goModules },
    { from: stdlib, to: stdlib },
    { from: path.join(python, sitePackages, "pip"), to: runtimes.pip },
  ];
}

/** Copies the interpreter and the libraries that it and its modules are linked to; resolves to its path inside. */
export function givePython(root: EmptyRoot): string {
  const { program, stdlib } = basePython();
  copyInto(root, program);
  for (const file of [program, ...globSync("lib-dynload/*.so", { cwd: stdlib }).map((name) => path.join(stdlib, name))])
    for (const library of librariesOf(file)) copyInto(root, library);
  return program;
}

function copyInto(root: EmptyRoot, file: string): void {
  const target = path.join(root.dir, file);
  if (existsSync(target)) return;
  mkdirSync(path.dirname(target), { recursive: true });
  cpSync(realpathSync(file), target);
}

function librariesOf(file: string): string[] {
  const printed = execFileSync("ldd", [file], { encoding: "utf8" });
  return [...printed.matchAll(/=> (\/\S+)/g)].map(([, library = ""]) => library);
}
