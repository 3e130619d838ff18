import path from "node:path";
import { readDevDir } from "../../scripts/checkout.ts";
import { buildPython } from "../../scripts/release/python.ts";
import { type Outcome, run } from "../examples/engine.ts";
import { article } from "./kubectl.ts";

/** Installs `agentic-sandbox-client` by pip from our own wheels, and runs what the articles print with it, against the engine of that environment. */
export async function runPrintedPython(work: string, engine: NodeJS.ProcessEnv): Promise<Outcome> {
  const dist = path.join(work, "dist");
  await buildPython({ version: "0.1.0", outDir: dist });
  const python = path.join(readDevDir("python"), "bin/python");
  const links = [dist, readDevDir("wheels")].flatMap((folder) => ["--find-links", folder]);
  const target = path.join(work, "site");
  const pip = [python, "-m", "pip", "install", "--quiet", "--no-index", ...links, "--target", target];
  const installed = await run([...pip, "agentic-sandbox-client"], { timeoutMs: 60_000 });
  if (installed.exitCode !== 0) throw new Error(`pip ended with ${installed.exitCode}: ${installed.stderr}`);
  const env = { ...engine, PYTHONPATH: target, PYTHONNOUSERSITE: "1" };
  return run([python, article("hello.py")], { cwd: work, env, timeoutMs: 90_000 });
}
