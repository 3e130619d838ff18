import type { Host } from "../../packages/server/src/node/host/host.ts";

/** Verbs that only look: dying around them is dying between the effects beside them. */
const looks = new Set(["info", "waitContainer", "waitHeld", "close", "cgroupStats"]);

/**
 * A host whose caller dies at one call: before the call takes effect, or after it with the answer lost. From then on nothing the
 * caller does takes effect any more, as if it were gone.
 */
export class CrashingHost {
  /** Effects asked for so far. */
  calls = 0;
  isDead = false;
  readonly host: Host;

  constructor(
    real: Host,
    {
      crashAt,
      takesEffect,
      onDeath,
    }: { readonly crashAt: number; readonly takesEffect: boolean; readonly onDeath: () => void },
  ) {
    this.host = new Proxy(real, {
      get: (target, name, receiver) => {
        const verb: unknown = Reflect.get(target, name, receiver);
        if (typeof verb !== "function") return verb;
        return (...args: readonly unknown[]): unknown => {
          const call = (): unknown => (verb as (...words: readonly unknown[]) => unknown).apply(target, [...args]);
          if (looks.has(String(name))) return this.isDead ? silence(args.at(-1)) : call();
          if (this.isDead) return Promise.reject(new Error("dead"));
          this.calls += 1;
          if (this.calls !== crashAt) return call();
          this.isDead = true;
          onDeath();
          if (takesEffect) void Promise.resolve(call()).catch(() => undefined);
          return Promise.reject(new Error("dead"));
        };
      },
    });
  }
}

/** No answer until the caller aborts; a caller without a signal is not kept. */
function silence(signal: unknown): Promise<never> {
  if (!(signal instanceof AbortSignal)) return Promise.reject(new Error("dead"));
  return new Promise((_resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
