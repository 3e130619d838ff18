import { isSandboxError, SandboxError } from "../errors/sandbox-error.ts";
import type { ConnectClient } from "../plane/connect-client.ts";
import { type DataPlane, daemonPort, type PlaneRequest, type PlaneResponse, readBytes } from "../plane/data-plane.ts";
import { fileFailure, throwAsFileError } from "./file-failure.ts";
import {
  type FileEvent,
  type FileInfo,
  fileInfoOf,
  type SearchMatch,
  searchMatchOf,
  type WireFileInfo,
  type WireSearchEvent,
} from "./file-info.ts";
import type * as LocalArchive from "./local-archive.ts";
import { restPath, type SandboxPath, shownPath, wirePath, wirePaths } from "./sandbox-path.ts";

/** Every call can be cancelled. */
export interface FileCallOptions {
  readonly signal?: AbortSignal;
}

/** Options of `write`. */
export interface WriteFileOptions extends FileCallOptions {
  /** Permission bits of a file that is made; default 0644. */
  readonly mode?: number;
  /** Add to the end instead of replacing. */
  readonly append?: boolean;
  /** Wait until it is on disk. */
  readonly sync?: boolean;
  /** Only when the file has this etag; else `conflict`. */
  readonly ifMatch?: string;
}

/** What a file can be written from. */
export type FileContent = string | Uint8Array | AsyncIterable<Uint8Array>;

const service = "agentsandbox.v1.FileService";

/** Files of a sandbox. Paths are absolute, or relative to the sandbox's working directory. */
export class SandboxFiles {
  readonly #plane: DataPlane;
  readonly #client: ConnectClient;

  constructor(plane: DataPlane, client: ConnectClient) {
    this.#plane = plane;
    this.#client = client;
  }

  /** A file's contents as text; what is not valid UTF-8 is replaced. */
  async readText(path: SandboxPath, options: FileCallOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** A file's contents. */
  async read(path: SandboxPath, options: FileCallOptions = {}): Promise<Uint8Array> {
    const { body } = await this.#contents(path, options);
    return readBytes(body);
  }

  /** A file's contents as they come; `start` and `end` (exclusive) choose a part. */
  async *readStream(
    path: SandboxPath,
    options: FileCallOptions & { readonly start?: number; readonly end?: number } = {},
  ): AsyncGenerator<Uint8Array> {
    const { start = 0, end, signal } = options;
    const range =
      start === 0 && end === undefined ? {} : { range: `bytes=${start}-${end === undefined ? "" : end - 1}` };
    const { body } = await this.#contents(path, { headers: range, signal });
    yield* body;
  }

  /** Writes a file in one step: readers see the old contents or the new. Missing directories are made. */
  async write(path: SandboxPath, content: FileContent, options: WriteFileOptions = {}): Promise<void> {
    const { mode, append, sync, ifMatch, signal } = options;
    const search = new URLSearchParams();
    if (mode !== undefined) search.set("mode", octal(mode));
    if (append === true) search.set("append", "true");
    if (sync === true) search.set("sync", "true");
    const request = {
      method: "PUT",
      path: restPath(path, search),
      headers: {
        "content-type": "application/octet-stream",
        ...(ifMatch !== undefined && { "if-match": ifMatch }),
      },
      body: content,
      signal,
    };
    try {
      await this.#send(`write ${shownPath(path)}`, request);
    } catch (error) {
      // The sandbox's answer does not say which argument was wrong.
      if (!isSandboxError(error, "invalid-argument") || !(await this.#isDirectory(path))) throw error;
      const { requestId } = error;
      throw new SandboxError("is-a-directory", `write ${shownPath(path)}: it is a directory`, {
        cause: error,
        requestId,
      });
    }
  }

  /** Describes what a path names; `noFollow` describes a link itself. */
  async stat(path: SandboxPath, options: FileCallOptions & { readonly noFollow?: boolean } = {}): Promise<FileInfo> {
    const { noFollow = false, signal } = options;
    return this.#file("Stat", { ...wirePath(path), noFollow }, signal);
  }

  /** Whether something is at that path. */
  async exists(path: SandboxPath, options: FileCallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if ((error as { code?: unknown }).code === "not-found") return false;
      throw error;
    }
  }

  /** Entries of a directory, by name; `depth` above 1 descends. */
  async *list(
    path: SandboxPath,
    options: FileCallOptions & { readonly depth?: number } = {},
  ): AsyncGenerator<FileInfo> {
    const { depth = 1, signal } = options;
    let pageToken = "";
    do {
      const message = { ...wirePath(path), depth, pageToken };
      const page = await this.#call<{ files?: WireFileInfo[]; nextPageToken?: string }>("List", message, signal);
      for (const file of page.files ?? []) yield fileInfoOf(file);
      pageToken = page.nextPageToken ?? "";
    } while (pageToken !== "");
  }

  /** Makes a directory; unless `parents` is false also those above it, and one that is there already is fine. */
  async mkdir(
    path: SandboxPath,
    options: FileCallOptions & { readonly mode?: number; readonly parents?: boolean } = {},
  ): Promise<FileInfo> {
    const { mode = 0o755, parents = true, signal } = options;
    return this.#file("MakeDir", { ...wirePath(path), mode, parents }, signal);
  }

  /** Moves; `file-exists` where something is at the target, unless `overwrite`. */
  async move(
    from: SandboxPath,
    to: SandboxPath,
    options: FileCallOptions & { readonly overwrite?: boolean } = {},
  ): Promise<FileInfo> {
    const { overwrite = false, signal } = options;
    return this.#file("Move", { ...wirePaths(from, to), overwrite }, signal);
  }

  /** Copies a file, or with `recursive` a directory. */
  async copy(
    from: SandboxPath,
    to: SandboxPath,
    options: FileCallOptions & { readonly overwrite?: boolean; readonly recursive?: boolean } = {},
  ): Promise<FileInfo> {
    const { overwrite = false, recursive = false, signal } = options;
    return this.#file("Copy", { ...wirePaths(from, to), overwrite, recursive }, signal);
  }

  /** Deletes; a link is deleted, not followed. */
  async delete(
    path: SandboxPath,
    options: FileCallOptions & { readonly recursive?: boolean; readonly missingOk?: boolean } = {},
  ): Promise<void> {
    const { recursive = false, missingOk = false, signal } = options;
    await this.#call("Remove", { ...wirePath(path), recursive, missingOk }, signal);
  }

  /** Changes mode and owner. */
  async setAttributes(
    path: SandboxPath,
    attributes: { readonly mode?: number; readonly uid?: number; readonly gid?: number },
    options: FileCallOptions = {},
  ): Promise<FileInfo> {
    return this.#file("SetAttributes", { ...wirePath(path), ...attributes }, options.signal);
  }

  /** Paths that match `*`, `?`, `[a-z]`, `{a,b}` and `**`, below `path`. */
  async glob(pattern: string, options: FileCallOptions & { readonly path?: SandboxPath } = {}): Promise<FileInfo[]> {
    const { path = "", signal } = options;
    const message = { pattern, ...wirePath(path) };
    const { files = [] } = await this.#call<{ files?: WireFileInfo[] }>("Glob", message, signal);
    return files.map(fileInfoOf);
  }

  /** Lines that match a regular expression (RE2), in text files below `path`; default the working directory. */
  async search(
    pattern: string,
    options: FileCallOptions & {
      readonly path?: SandboxPath;
      /** The pattern is plain text. */
      readonly literal?: boolean;
      readonly ignoreCase?: boolean;
    } = {},
  ): Promise<SearchMatch[]> {
    const { path = ".", literal = false, ignoreCase = false, signal } = options;
    const message = { pattern, ...wirePath(path), literal, ignoreCase };
    const found: SearchMatch[] = [];
    try {
      for await (const { match } of this.#client.stream<WireSearchEvent>(`${service}/Search`, message, { signal })) {
        if (match !== undefined) found.push(searchMatchOf(match));
      }
    } catch (error) {
      throwAsFileError(error);
    }
    return found;
  }

  /** A file's digest in lower-case hexadecimal, computed in the sandbox. Default algorithm: sha256. */
  async checksum(
    path: SandboxPath,
    options: FileCallOptions & { readonly algorithm?: "sha256" | "sha512" | "sha1" | "md5" } = {},
  ): Promise<string> {
    const { algorithm = "sha256", signal } = options;
    const { digest = "" } = await this.#call<{ digest?: string }>("Checksum", { ...wirePath(path), algorithm }, signal);
    return digest;
  }

  /**
   * Changes below a directory. The call resolves when the watch is in place: every change after that is reported.
   * End the iteration to end the watch.
   */
  async watch(
    path: SandboxPath,
    options: FileCallOptions & { readonly recursive?: boolean } = {},
  ): Promise<AsyncGenerator<FileEvent>> {
    const { recursive = false, signal } = options;
    const events = this.#client.stream<WireWatchEvent>(
      `${service}/Watch`,
      { ...wirePath(path), recursive },
      { signal },
    );
    // The first event says that the watch is in place.
    await events.next().catch(throwAsFileError);
    return fileEvents(events);
  }

  /** A tar archive of a directory's contents, or of one file under its own name. */
  async *readArchive(path: SandboxPath, options: FileCallOptions = {}): AsyncGenerator<Uint8Array> {
    const request = {
      method: "GET",
      path: restPath(path, new URLSearchParams({ format: "tar" })),
      signal: options.signal,
    };
    const { body } = await this.#send(`archive ${shownPath(path)}`, request);
    yield* body;
  }

  /** Unpacks a tar archive, plain or gzip, into a directory, which is made where it is missing. */
  async writeArchive(path: SandboxPath, archive: FileContent, options: FileCallOptions = {}): Promise<void> {
    await this.#send(`unpack into ${shownPath(path)}`, {
      method: "PUT",
      path: restPath(path, new URLSearchParams({ extract: "tar" })),
      headers: { "content-type": "application/x-tar" },
      body: archive,
      signal: options.signal,
    });
  }

  /** Copies a directory (or one file) of this machine into the sandbox. Not in browsers. */
  async upload(localPath: string, path: SandboxPath, options: FileCallOptions = {}): Promise<void> {
    const { packLocal } = await localArchive();
    await this.writeArchive(path, packLocal(localPath), options);
  }

  /** Copies a directory (or one file) of the sandbox into a directory of this machine. Not in browsers. */
  async download(path: SandboxPath, localPath: string, options: FileCallOptions = {}): Promise<void> {
    const { unpackLocal } = await localArchive();
    await unpackLocal(this.readArchive(path, options), localPath);
  }

  async #file(method: string, message: object, signal: AbortSignal | undefined): Promise<FileInfo> {
    const { file } = await this.#call<{ file?: WireFileInfo }>(method, message, signal);
    return fileInfoOf(file);
  }

  async #call<T>(method: string, message: object, signal: AbortSignal | undefined): Promise<T> {
    return this.#client.unary<T>(`${service}/${method}`, message, { signal }).catch(throwAsFileError);
  }

  /** Sends for a file's contents; a directory, which is answered with a listing, has none. */
  async #contents(path: SandboxPath, options: Pick<PlaneRequest, "headers" | "signal">): Promise<PlaneResponse> {
    const response = await this.#send(`read ${shownPath(path)}`, { method: "GET", path: restPath(path), ...options });
    // A file never has this type.
    if (!(response.headers["content-type"] ?? "").startsWith("application/json")) return response;
    await readBytes(response.body);
    throw new SandboxError("is-a-directory", `read ${shownPath(path)}: it is a directory`);
  }

  async #isDirectory(path: SandboxPath): Promise<boolean> {
    const info = await this.stat(path).catch(() => undefined);
    return info?.type === "directory";
  }

  async #send(what: string, request: Omit<PlaneRequest, "port">): Promise<PlaneResponse> {
    const response = await this.#plane.request({ ...request, port: daemonPort });
    if (response.status >= 200 && response.status < 300) return response;
    throw await fileFailure(what, response);
  }
}

/** The name is a variable, so that bundlers for browsers do not follow it into what only Node has. */
async function localArchive(): Promise<typeof LocalArchive> {
  const module = import.meta.url.endsWith(".ts") ? "./local-archive.ts" : "./local-archive.js";
  return (await import(module)) as typeof LocalArchive;
}

interface WireWatchEvent {
  readonly type?: string;
  readonly path?: string;
  readonly oldPath?: string;
  readonly directory?: boolean;
}

async function* fileEvents(events: AsyncGenerator<WireWatchEvent>): AsyncGenerator<FileEvent> {
  for await (const { type = "", path = "", oldPath = "", directory = false } of events) {
    const word = type.replace("WATCH_EVENT_TYPE_", "").toLowerCase() as FileEvent["type"];
    yield { type: word, path, oldPath: oldPath === "" ? undefined : oldPath, isDirectory: directory };
  }
}

function octal(mode: number): string {
  return `0${(mode & 0o777).toString(8).padStart(3, "0")}`;
}
