import { usageError } from "./cli-error.ts";

/** Reads `NAME=value` pairs; where `env` is given, a name alone takes its value from there and is left out when it has none. */
export function parsePairs(
  flag: string,
  pairs: readonly string[],
  env?: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const result: Record<string, string> = {};
  for (const pair of pairs) {
    const equals = pair.indexOf("=");
    const name = equals < 0 ? pair : pair.slice(0, equals);
    if (name === "" || (equals < 0 && env === undefined)) throw usageError(`${flag}: '${pair}' is not NAME=VALUE`);
    const value = equals < 0 ? env?.[name] : pair.slice(equals + 1);
    if (value !== undefined) result[name] = value;
  }
  return result;
}
