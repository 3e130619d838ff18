import { chmod, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { join } from "node:path";
import { HostError } from "../host/host-error.ts";
import { ImageError } from "../images/image-error.ts";
import { storedReference } from "../images/image-index.ts";
import { loadArchive } from "../images/load-archive.ts";
import type { PodContext } from "../pods/pod-context.ts";

/** The local admin API's parts. */
export interface AdminServerOptions {
  /** Unix socket; only root and the engine's user may open it. */
  readonly path: string;
  readonly context: PodContext;
  readonly architecture: string;
}

/** A running admin API. */
export interface AdminServer {
  close(): Promise<void>;
}

/** Serves `image ls|rm|pull|load` to the command line, over a Unix socket. */
export async function startAdminServer(options: AdminServerOptions): Promise<AdminServer> {
  await rm(options.path, { force: true });
  const server = createServer((request, response) => {
    void serve(options, request, response).catch((error: unknown) => fail(response, error));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.path, () => resolve());
  });
  await chmod(options.path, 0o600);
  return {
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

async function serve(options: AdminServerOptions, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? "/", "http://node");
  const { images } = options.context;
  switch (`${request.method ?? ""} ${url.pathname}`) {
    case "GET /v1/images":
      return answer(response, { images: images.list() });
    case "DELETE /v1/images": {
      const reference = required(url, "reference");
      assertUnused(options.context, reference);
      const removed = await images.remove(reference);
      await images.collectGarbage(options.context.signal);
      return answer(response, { removed });
    }
    case "POST /v1/images/load":
      return load(options, request, response, url);
    case "POST /v1/images/pull":
      return pull(options, response, url);
    default:
      response
        .writeHead(404, { "content-type": "application/json" })
        .end(JSON.stringify({ code: "not-found", message: `no such call: ${url.pathname}` }));
  }
}

/** A name may go while containers run on its image only if another name keeps the image. */
function assertUnused({ images, records }: PodContext, reference: string): void {
  const image = images.find(reference);
  if (image === undefined) return;
  const used = storedReference(image);
  if (images.list().some((other) => storedReference(other) === used && other.name !== image.name)) return;
  const user = records
    .all()
    .find(({ containers }) => Object.values(containers).some(({ imageId }) => imageId === used));
  if (user === undefined) return;
  throw new ImageError("in-use", `image ${image.name} is in use by pod ${user.namespace}/${user.name}`);
}

async function load(
  { context, architecture }: AdminServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
): Promise<void> {
  const name = url.searchParams.get("name");
  const stem = url.searchParams.get("stem");
  const loaded = await loadArchive(request, {
    store: context.images,
    scratchDir: join(context.config.dataDir, "images", "incoming"),
    architecture,
    ...(name !== null && { name }),
    ...(stem !== null && { stem }),
  });
  for (const image of loaded) await context.images.prepare(image, context.signal);
  answer(response, { images: loaded });
}

/** Progress as JSON lines, the last of which is the image or the error. */
async function pull({ context }: AdminServerOptions, response: ServerResponse, url: URL): Promise<void> {
  const reference = required(url, "reference");
  response.writeHead(200, { "content-type": "application/jsonl" });
  const line = (value: unknown): void => void response.write(`${JSON.stringify(value)}\n`);
  const gone = new AbortController();
  response.on("close", () => gone.abort(new Error("client closed the connection")));
  try {
    const image = await context.puller.pull({
      reference,
      onProgress: (progress) => line({ progress }),
      signal: AbortSignal.any([gone.signal, context.signal]),
    });
    await context.images.prepare(image, context.signal);
    line({ image });
  } catch (error) {
    if (!(error instanceof ImageError || error instanceof HostError)) throw error;
    line({ error: { code: error.code, message: error.message } });
  }
  response.end();
}

function required(url: URL, name: string): string {
  const value = url.searchParams.get(name);
  if (value === null || value === "") throw new ImageError("invalid-name", `${name} is required`);
  return value;
}

function answer(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
}

function fail(response: ServerResponse, error: unknown): void {
  const isKnown = error instanceof ImageError || error instanceof HostError;
  const body = isKnown ? { code: error.code, message: error.message } : { code: "internal", message: "internal error" };
  if (!response.headersSent) response.writeHead(isKnown ? 400 : 500, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}
