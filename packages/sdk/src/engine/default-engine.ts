import type { Engine } from "./engine.ts";
import type { EngineOptions } from "./engine-options.ts";

/** Engines by their options: one process shares its connections. Bound: as many as a program names different options. */
const engines = new Map<string, Promise<Engine>>();

/** The engine for some options, connected once; a failure is forgotten, so that the next call may find what was started since. */
export function findEngine(given: Engine | EngineOptions = {}): Promise<Engine> {
  if (isEngine(given)) return Promise.resolve(given);
  const key = JSON.stringify(given);
  const known = engines.get(key);
  if (known !== undefined) return known;
  // Loaded on first use: what finds and speaks to an engine is most of the SDK's weight.
  const opening = import("./connect-engine.ts").then(({ connectEngine }) => connectEngine(given));
  engines.set(key, opening);
  opening.catch(() => engines.delete(key));
  return opening;
}

/** Ends the connections of every engine that calls without an engine of their own have opened. */
export async function closeEngines(): Promise<void> {
  const open = [...engines.values()];
  engines.clear();
  for (const engine of open) await (await engine).close();
}

function isEngine(given: Engine | EngineOptions): given is Engine {
  return "openPlane" in given;
}
