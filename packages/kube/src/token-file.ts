import type { Clock } from "./clock.ts";
import type { Credentials } from "./credentials.ts";

/** Kubelets replace a token when a fifth of its life is left, minutes at least; reading it once a minute is soon enough. */
const rereadMs = 60_000;

/** Authorises with a token from a file, which is read again when it may have been replaced. */
export function tokenFile(path: string, clock: Clock): NonNullable<Credentials["authorize"]> {
  let cached: { readonly headers: Readonly<Record<string, string>>; readonly untilMs: number } | undefined;
  return async () => {
    const nowMs = clock.nowMs();
    if (cached !== undefined && nowMs < cached.untilMs) return cached.headers;
    const { readFile } = await import("node:fs/promises");
    const token = (await readFile(path, "utf8")).trim();
    cached = { headers: { authorization: `Bearer ${token}` }, untilMs: nowMs + rereadMs };
    return cached.headers;
  };
}
