import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

/** The root of the checkout. */
export const rootDir = path.resolve(import.meta.dirname, "..");

const stateDir = path.join(rootDir, "node_modules/.agent-sandbox");

/** What set-up recorded; see scripts/setup/runtime-steps.mjs. */
export interface SetupRecord {
  readonly cacheDir: string;
  readonly go: string;
  readonly runsc: string;
  readonly runscVersion: string;
  readonly sandboxd: string;
  readonly sandboxHost: string;
  readonly sandboxProbe: string;
}

/** Reads where set-up put the programs. */
export function readSetup(): SetupRecord {
  return JSON.parse(readFileSync(path.join(stateDir, "setup.json"), "utf8")) as SetupRecord;
}

/** The directory a development step of the set-up made. */
export function readDevDir(
  step: "python" | "gotools" | "servers" | "postgres" | "xfs" | "package-tools" | "wheels" | "gomodules",
): string {
  return readFileSync(path.join(stateDir, step), "utf8");
}

/** The Go modules of the repository that exist, relative to its root. */
export function goModules(): readonly string[] {
  const modules = ["native", "sdks/go", "test/cluster", "examples/warm-pool", "test/examples/mistakes"];
  return modules.filter((dir) => existsSync(path.join(rootDir, dir, "go.mod")));
}

/** Environment for Go programs: the toolchain set-up chose and no other, whatever a go.mod asks for. */
export function goEnvironment(extra: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  return { ...process.env, GOTOOLCHAIN: "local", GOFLAGS: "-buildvcs=false", ...extra };
}

/** Runs a program in the checkout with inherited output; true when it exits with 0. */
export function succeeds(
  program: string,
  args: readonly string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv } = {},
): boolean {
  const child = spawnSync(program, args, { cwd: rootDir, stdio: "inherit", ...options });
  if (child.error) process.stderr.write(`${program}: ${child.error.message}\n`);
  return child.status === 0;
}

/** `12.3 s`, for the line each part ends with. */
export function secondsSince(startMs: number): string {
  return `${((Date.now() - startMs) / 1000).toFixed(1)} s`;
}
