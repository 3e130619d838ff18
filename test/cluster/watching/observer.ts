import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { pythonWith } from "../../published/published-sdk.ts";
import type { Watched } from "./delivery.ts";

/** Whom an observer watches, and how; as `settings` in main.go. */
export interface ObserverSettings {
  readonly kubeconfig: string;
  readonly proxied: string;
  readonly direct: string;
  readonly namespace: string;
  readonly cut: number;
  readonly closed: number;
}

/** A program that watches. */
export interface Observer {
  /** Watches so far that went on where an earlier one ended. */
  readonly resumed: number;
  /** Lists so far by every watcher. */
  readonly listed: readonly number[];
  /** Resolves when the condition holds; looked at after every line. */
  until(condition: () => boolean): Promise<void>;
  /** Every watcher's account, once the last object has come. */
  readonly watched: Promise<readonly Watched[]>;
}

/** The informers of client-go; compiled on first use, by Go's own cache for nothing afterwards. */
export function informerProgram(directory: string): readonly string[] {
  const setup = path.resolve(import.meta.dirname, "../../../node_modules/.agent-sandbox/setup.json");
  const { go } = JSON.parse(readFileSync(setup, "utf8")) as { go: string };
  const program = path.join(directory, "watching");
  // The flags of the other programs, so that what those compiled serves here too.
  execFileSync(go, ["build", "-trimpath", "-ldflags=-s -w", "-o", program, "./watching"], {
    cwd: path.resolve(import.meta.dirname, ".."),
    env: { ...process.env, CGO_ENABLED: "0", GOTOOLCHAIN: "local", GOFLAGS: "-buildvcs=false" },
    stdio: "inherit",
  });
  return [program];
}

/** The Python client that the published SDK brings. */
export function pythonProgram(): readonly string[] {
  return [pythonWith("1.0.8"), path.join(import.meta.dirname, "watching.py")];
}

/** Starts a program; it dies with this process. */
export function startObserver([program = "", ...args]: readonly string[], settings: ObserverSettings): Observer {
  const argv = ["--pdeathsig", "KILL", program, ...args, JSON.stringify(settings)];
  const child = spawn("setpriv", argv, { stdio: ["ignore", "pipe", "pipe"] });
  const errors = text(child.stderr);
  const listed = Array.from({ length: 2 * (settings.cut + settings.closed) }, () => 0);
  const waiting = new Set<() => void>();
  let resumed = 0;
  const watched = (async () => {
    let last: readonly Watched[] | undefined;
    for await (const line of createInterface({ input: child.stdout })) {
      const said = JSON.parse(line) as { resumed?: number; listed?: number; watchers?: Watched[] };
      if (said.resumed !== undefined) resumed += 1;
      if (said.listed !== undefined) listed[said.listed] = (listed[said.listed] ?? 0) + 1;
      last = said.watchers ?? last;
      for (const look of waiting) look();
    }
    if (last === undefined) throw new Error(`${program} ended without a report:\n${(await errors).slice(-4000)}`);
    return last;
  })();
  return {
    get resumed() {
      return resumed;
    },
    listed,
    watched,
    until: (condition) => {
      const holds = new Promise<void>((resolve) => {
        const look = (): void => {
          if (!condition()) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        look();
      });
      return Promise.race([holds, watched.then(() => {})]);
    },
  };
}
