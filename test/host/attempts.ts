// Tries things with the rights of another user and says how each ended:  node attempts.ts UID GID < attempts.json
import {
  appendFileSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import http from "node:http";
import net from "node:net";
import { text } from "node:stream/consumers";

/** One thing to try. */
export type Attempt =
  | { readonly do: "read" | "list" | "append" | "make" | "remove" | "connect" | "ask"; readonly path: string }
  | { readonly do: "rename" | "link" | "hard-link"; readonly path: string; readonly to: string }
  | { readonly do: "signal"; readonly pid: number };

/** `done`, the answer's status for `ask`, or the code of the error. */
export type Outcome = string;

async function carryOut(attempt: Attempt): Promise<Outcome> {
  switch (attempt.do) {
    case "read":
      readFileSync(attempt.path);
      return "done";
    case "list":
      readdirSync(attempt.path);
      return "done";
    case "append":
      appendFileSync(attempt.path, "x");
      return "done";
    case "make":
      mkdirSync(attempt.path);
      return "done";
    case "remove":
      rmSync(attempt.path);
      return "done";
    case "rename":
      renameSync(attempt.path, attempt.to);
      return "done";
    case "link":
      symlinkSync(attempt.to, attempt.path);
      return "done";
    case "hard-link":
      linkSync(attempt.to, attempt.path);
      return "done";
    case "connect":
      return connect(attempt.path);
    case "ask":
      return ask(attempt.path);
    case "signal":
      process.kill(attempt.pid, 0);
      return "done";
    default:
      return attempt satisfies never;
  }
}

function connect(path: string): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(path, () => {
      socket.destroy();
      resolve("done");
    });
    socket.once("error", reject);
  });
}

/** Asks the privileged helper for something harmless. */
function ask(path: string): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const request = http.request({ socketPath: path, method: "POST", path: "/v1/info" }, (response) => {
      response.resume();
      resolve(String(response.statusCode));
    });
    request.once("error", reject);
    request.end("{}");
  });
}

async function main(): Promise<void> {
  const [uid = 0, gid = 0] = process.argv.slice(2).map(Number);
  const attempts = JSON.parse(await text(process.stdin)) as Attempt[];
  process.setgroups?.([]);
  process.setgid?.(gid);
  process.setuid?.(uid);
  const outcomes: Outcome[] = [];
  for (const attempt of attempts)
    outcomes.push(await carryOut(attempt).catch((error: NodeJS.ErrnoException) => error.code ?? String(error)));
  writeFileSync(1, JSON.stringify(outcomes));
}

if (import.meta.main) await main();
