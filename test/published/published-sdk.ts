import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";

/** The published releases that must work. */
export type SdkVersion = "0.5.6" | "1.0.8";

/** What a check found. */
export interface Finding {
  /** How many assertions it made; none at all proves nothing. */
  readonly asserted: number;
  readonly failures: readonly string[];
}

const extras: Readonly<Record<SdkVersion, string>> = { "0.5.6": "async", "1.0.8": "async,grpc" };

/** The Python of an environment with that release in it; made on first use and kept in the cache. */
export function pythonWith(version: SdkVersion): string {
  const cache = process.env["AGENT_SANDBOX_CACHE_DIR"] ?? path.join(homedir(), ".cache/agent-sandbox");
  const directory = path.join(cache, "published", `k8s-agent-sandbox-${version}`);
  const python = path.join(directory, "bin/python");
  const done = path.join(directory, "complete");
  if (existsSync(done)) return python;
  mkdirSync(path.dirname(directory), { recursive: true });
  execFileSync("python3", ["-m", "venv", "--clear", directory], { stdio: "inherit" });
  const wanted = `k8s-agent-sandbox[${extras[version]}]==${version}`;
  execFileSync(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted], {
    stdio: "inherit",
  });
  writeFileSync(`${done}.partial`, wanted);
  renameSync(`${done}.partial`, done);
  return python;
}

/** Runs the driver in a place with its options; resolves with what each check found. */
export async function drive(
  inside: (...argv: readonly string[]) => readonly [string, readonly string[]],
  options: Readonly<Record<string, unknown>> & { readonly version: SdkVersion },
  environment: Readonly<Record<string, string>>,
): Promise<Record<string, Finding>> {
  const [program, args] = inside(
    pythonWith(options.version),
    path.join(import.meta.dirname, "driver.py"),
    JSON.stringify(options),
  );
  const env = { ...process.env, PYTHONDONTWRITEBYTECODE: "1", ...environment };
  const child = spawn(program, args, { env });
  const [stdout, stderr] = [text(child.stdout), text(child.stderr)];
  const [code] = (await once(child, "close")) as [number | null];
  const output = await stdout;
  if (process.env["PUBLISHED_LOG"] !== undefined) process.stderr.write(await stderr);
  if (code !== 0)
    throw new Error(`the driver ended with ${code}:\n${(await stderr).slice(-4000)}\n${output.slice(-2000)}`);
  return JSON.parse(output.trimEnd().split("\n").at(-1) ?? "{}") as Record<string, Finding>;
}
