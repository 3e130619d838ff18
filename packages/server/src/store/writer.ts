import { once } from "node:events";
import type { DatabaseSync } from "node:sqlite";
import { Worker } from "node:worker_threads";
import { entryFile } from "../installation/installation.ts";
import type { WriterReply, WriterRequest } from "./batch.ts";
import { LogWriter, type WriterStep } from "./log-writer.ts";
import { storeErrorOf } from "./sqlite-error.ts";
import { StoreError } from "./store-error.ts";

/** Carries requests to the code that changes the file. One request at a time. */
export interface Writer {
  send(request: WriterRequest): Promise<WriterReply>;
}

/** Where a crash test ends the process: at the `hit`th time the writer comes by `step`. */
export interface Failpoint {
  readonly step: WriterStep;
  readonly hit: number;
}

/** What the writer's thread is started with. */
export interface WriterThreadOptions {
  readonly path: string;
  readonly maxSizeBytes?: number;
  readonly failpoint?: Failpoint;
}

/** What the thread says first: its code is loaded, and it waits to be told which file it writes. */
export const writerLoaded = "loaded";

/** The writer's thread, which has opened no file yet. */
export interface WriterThread {
  readonly worker: Worker;
  /** Resolves when it has loaded all the code it will ever need; a process that gives up rights waits for it. */
  readonly loaded: Promise<void>;
}

/** Answers requests in place, for a store in memory. */
export function inlineWriter(database: DatabaseSync, path: string): Writer {
  const log = new LogWriter(database);
  return { send: async (request) => answer(log, request, path) };
}

/** Carries out one request; failures of SQLite become a reply, so that they can cross between threads. */
export function answer(log: LogWriter, request: WriterRequest, path: string): WriterReply {
  try {
    switch (request.do) {
      case "append":
        return { kind: "appended", outcomes: log.append(request.batch) };
      case "compact":
        return { kind: "compacted", revision: log.compact(request.toRevision) };
      case "close":
        return { kind: "closed" };
      default:
        return request satisfies never;
    }
  } catch (error) {
    const known = storeErrorOf(error, path);
    if (known instanceof StoreError) {
      const { cause } = known;
      const detail = cause instanceof Error ? ` (${cause.message})` : "";
      return { kind: "failed", code: known.code, message: `${known.message}${detail}` };
    }
    return { kind: "failed", code: "failed", message: `store ${path} writer failed: ${String(error)}` };
  }
}

/** Starts the writer's thread. It does not keep the process alive by itself. */
export function startWriterThread(): WriterThread {
  const worker = new Worker(entryFile("writer-thread"), { name: "store-writer" });
  const loaded = new Promise<void>((resolve, reject) => {
    worker.once("message", () => resolve());
    worker.once("error", reject);
  });
  // The rejection reaches those who await `loaded`, and the first request; without this line an unused writer would end the process.
  loaded.catch(() => {});
  worker.unref();
  return { worker, loaded };
}

/** Gives the file to the writer's thread, so that no commit blocks the event loop. */
export function threadWriter(
  { path, maxSizeBytes, failpoint }: WriterThreadOptions,
  { worker }: WriterThread = startWriterThread(),
): Writer {
  const options: WriterThreadOptions = {
    path,
    ...(maxSizeBytes !== undefined && { maxSizeBytes }),
    ...(failpoint !== undefined && { failpoint }),
  };
  worker.postMessage(options);
  let waiting: PromiseWithResolvers<WriterReply> | undefined;
  let ended: StoreError | undefined;
  const end = (why: string, cause?: unknown): void => {
    ended ??= new StoreError("failed", `store ${path} writer ${why}`, { cause });
    waiting?.reject(ended);
  };
  worker.on("message", (reply: WriterReply | typeof writerLoaded) => {
    if (reply !== writerLoaded) waiting?.resolve(reply);
  });
  worker.on("error", (error) => end("failed", error));
  worker.on("exit", (code) => end(`ended with code ${code}`));
  return {
    async send(request) {
      if (ended !== undefined) throw ended;
      waiting = Promise.withResolvers<WriterReply>();
      // A write under way is a reason for the process to stay.
      worker.ref();
      worker.postMessage(request, request.do === "append" ? [request.batch.bytes] : []);
      try {
        const reply = await waiting.promise;
        if (request.do === "close" && ended === undefined) await once(worker, "exit");
        return reply;
      } finally {
        waiting = undefined;
        worker.unref();
      }
    },
  };
}
