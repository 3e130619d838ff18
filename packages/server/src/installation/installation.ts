import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

/** Where a release has its files, relative to its root; `scripts/release/layout.ts` builds one from it. */
export const releaseLayout = {
  /** Compiled JavaScript, all in one folder. */
  app: "lib/app",
  /** What is read of `spec/`. */
  spec: "lib/app/spec",
  /** Native programs. */
  programs: "libexec",
  /** Programs of the distribution that a machine may lack; used only where it does. */
  tools: "libexec/tools",
  record: "release.json",
} as const;

// A release has compiled JavaScript only, so the ending of this file's own name tells it from a checkout.
const isCheckout = import.meta.filename.endsWith(".ts");

/** Where the checkout or the unpacked release begins. In a release every compiled file lies in `lib/app`. */
const rootDir = path.resolve(import.meta.dirname, isCheckout ? "../../../.." : "../..");

/** Where the files of this installation begin. */
export function installationDir(): string {
  return rootDir;
}

/** Modules that are started or loaded by their path, as files of the checkout; in a release each is `lib/app/<name>.js`. */
export const entryModules = {
  main: "packages/cli/src/main.ts",
  "control-role": "packages/server/src/main/control-role.ts",
  "router-role": "packages/server/src/main/router-role.ts",
  "node-role": "packages/server/src/main/node-role.ts",
  "node-cluster-role": "packages/server/src/main/node-cluster-role.ts",
  "controller-process": "packages/server/src/main/controller-process.ts",
  "router-process": "packages/server/src/main/router-process.ts",
  "node-process": "packages/server/src/main/node-process.ts",
  "switch-guard-process": "packages/server/src/main/switch-guard-process.ts",
  "export-role-files": "packages/server/src/main/export-role-files.ts",
  "writer-thread": "packages/server/src/store/writer-thread.ts",
  "local-archive": "packages/sdk/src/files/local-archive.ts",
} as const;

/** One of them. */
export type EntryName = keyof typeof entryModules;

/** The file of a module that is started or loaded by its path. */
export function entryFile(name: EntryName): string {
  return path.join(rootDir, isCheckout ? entryModules[name] : `${releaseLayout.app}/${name}.js`);
}

/** The files of `spec/` that are read at run time; a release has them below `lib/app/spec`. */
export const specFiles = [
  "advisories.json",
  "builtin/crds.json",
  "builtin/definitions.json",
  "builtin/kinds.json",
  "builtin/protobuf.json",
] as const;

/** The path of one of them. */
export function specFile(name: (typeof specFiles)[number]): string {
  return path.join(rootDir, isCheckout ? "spec" : releaseLayout.spec, name);
}

/** What `release.json` at the root of a release says. */
export interface ReleaseRecord {
  readonly version: string;
  readonly arch: "x64" | "arm64";
  readonly commit: string;
  readonly node: string;
  readonly runsc: { readonly version: string; readonly sha256: string };
  /** The format of the store that it reads and writes; see `storeFormat`. */
  readonly storeFormat: number;
  /** The sha256 of each native program by its name. */
  readonly programs: Readonly<Record<string, string>>;
}

/** The record of the release that this is, or undefined in a checkout. */
export function readRelease(): ReleaseRecord | undefined {
  if (isCheckout) return undefined;
  return JSON.parse(readFileSync(path.join(rootDir, releaseLayout.record), "utf8")) as ReleaseRecord;
}

/** Full paths of the native programs, and the version of gVisor that `runsc` is. */
export interface NativePrograms {
  readonly runsc: string;
  readonly runscVersion: string;
  readonly sandboxd: string;
  readonly sandboxHost: string;
  readonly sandboxProbe: string;
}

/** The native programs: what set-up built for a checkout, what came with a release. */
export function nativePrograms(): NativePrograms {
  const release = readRelease();
  if (release === undefined) return readSetup();
  const program = (name: string): string => path.join(rootDir, releaseLayout.programs, name);
  return {
    runsc: program("runsc"),
    runscVersion: release.runsc.version,
    sandboxd: program("sandboxd"),
    sandboxHost: program("sandbox-host"),
    sandboxProbe: program("sandbox-probe"),
  };
}

function readSetup(): NativePrograms {
  try {
    return JSON.parse(checkoutFile("node_modules/.agent-sandbox/setup.json") ?? "") as NativePrograms;
  } catch (cause) {
    throw new Error("the engine is not set up; start it through ./agent-sandbox, which does so", { cause });
  }
}

/**
 * A program of the distribution, as the helper finds it too: the machine's own, else the one that came with a release, with what its environment
 * needs besides. Only in a checkout, with which none came, the search path is looked at: its directories may be a user's.
 */
export function systemTool(
  name: string,
  searchPath = "",
): { readonly file: string; readonly env: Readonly<Record<string, string>> } {
  const userDirs = isCheckout ? searchPath.split(":").filter(Boolean) : [];
  const dirs = ["/usr/sbin", "/sbin", "/usr/bin", ...userDirs];
  const own = dirs.map((dir) => path.join(dir, name)).find((file) => existsSync(file));
  if (own !== undefined || isCheckout) return { file: own ?? name, env: {} };
  const carried = path.join(rootDir, releaseLayout.tools);
  return { file: path.join(carried, name), env: { LD_LIBRARY_PATH: path.join(carried, "lib") } };
}

/** The text of a file of the checkout; undefined where it is not there, and in a release. */
export function checkoutFile(name: string): string | undefined {
  if (!isCheckout) return undefined;
  try {
    return readFileSync(path.join(rootDir, name), "utf8");
  } catch (error) {
    // In a work tree of git `.git` is a file, so that what would lie below it is not there either.
    if (["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    throw error;
  }
}
