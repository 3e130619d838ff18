import { closest } from "./did-you-mean.ts";
import { SandboxError } from "./sandbox-error.ts";

/** Every name of an options type; the type checker asks for all of them. */
export type OptionNames<O> = Readonly<Record<keyof O, true>>;

/**
 * Throws `invalid-argument` for an option that a call does not have, with the one that was meant. Programs without type
 * checks would otherwise wait for what a misspelt option asks for.
 */
export function assertKnownOptions<O extends object>(call: string, options: O, names: OptionNames<O>): void {
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(names, name));
  if (unknown === undefined) return;
  const [best] = closest(unknown, Object.keys(names));
  const advice = best === undefined ? `one of ${Object.keys(names).join(", ")}` : `'${best}'`;
  throw new SandboxError("invalid-argument", `${call}: unknown option '${unknown}'; use ${advice}`);
}
