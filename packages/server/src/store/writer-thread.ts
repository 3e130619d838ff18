/** The body of the writer's thread: opens the file that its first message names, then answers one request after the other. */
import { flushCompileCache } from "node:module";
import { DatabaseSync } from "node:sqlite";
import { parentPort } from "node:worker_threads";
import type { WriterRequest } from "./batch.ts";
import { LogWriter, type WriterStep } from "./log-writer.ts";
import { configureWriter } from "./schema.ts";
import { answer, type WriterThreadOptions, writerLoaded } from "./writer.ts";

if (parentPort === null) throw new Error("bug: the writer's body runs only in a thread");
const port = parentPort;
// Without the cache this thread would keep a TypeScript compiler of its own in memory; at its end the process may no
// longer have the right to write.
flushCompileCache();

port.once("message", serve);
port.postMessage(writerLoaded);

function serve(options: WriterThreadOptions): void {
  // The timeout covers a checkpoint that another connection of this process has under way.
  const database = new DatabaseSync(options.path, { timeout: 5_000 });
  configureWriter(database, options);
  const log = new LogWriter(database, failAt(options));
  port.on("message", (request: WriterRequest) => {
    port.postMessage(answer(log, request, options.path));
    if (request.do !== "close") return;
    database.close();
    port.close();
  });
}

function failAt({ failpoint }: WriterThreadOptions): (step: WriterStep) => void {
  if (failpoint === undefined) return () => {};
  let left = failpoint.hit;
  return (step) => {
    if (step !== failpoint.step) return;
    left -= 1;
    if (left === 0) process.kill(process.pid, "SIGKILL");
  };
}
