import { request as httpRequest, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { BackupError } from "../backup/backup-error.ts";

/** One image of the helper's: a volume, or a kept writable layer. */
export interface ImageName {
  readonly kind: "volume" | "writable";
  readonly id: string;
}

/** An image as it was at one moment. */
export interface ExportedImage {
  /** Bytes on the way, in the form that `writeSparse` reads. */
  readonly sizeBytes: number;
  /** The image's own size. */
  readonly realBytes: number;
  /** How long those who wrote to it waited. */
  readonly pausedMs: number;
  readonly bytes: AsyncIterable<Uint8Array>;
}

/** Its name in a backup. */
export function imagePart({ kind, id }: ImageName): string {
  return kind === "volume" ? `host/volumes/${id}.img` : `host/writable/kept/${id}.img`;
}

/** Asks the helper for an image; undefined where there is none of that name any more. The helper answers root alone. */
export async function exportImage(
  socketPath: string,
  image: ImageName,
  { pauseMaxMs, signal }: { readonly pauseMaxMs: number; readonly signal: AbortSignal },
): Promise<ExportedImage | undefined> {
  const response = await ask(socketPath, JSON.stringify({ ...image, pauseMaxMs }), signal);
  if (response.statusCode !== 200) {
    const { code, message } = JSON.parse(await text(response)) as { code?: string; message?: string };
    if (code === "not-found") return undefined;
    throw new BackupError("engine", `${imagePart(image)} could not be copied: ${message ?? response.statusCode}`);
  }
  const { headers } = response;
  return {
    sizeBytes: Number(headers["content-length"]),
    realBytes: Number(headers["image-size-bytes"]),
    pausedMs: Number(headers["paused-ms"]),
    bytes: named(response, image, signal),
  };
}

/** The bytes as they come; what ends them early, such as a helper that is started again, is said with the image's name. */
async function* named(
  bytes: AsyncIterable<Uint8Array>,
  image: ImageName,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  try {
    yield* bytes;
  } catch (cause) {
    if (signal.aborted) throw signal.reason;
    throw new BackupError(
      "engine",
      `${imagePart(image)} could not be copied: the engine's helper ended (${(cause as Error).message}); try again`,
      { cause },
    );
  }
}

function ask(socketPath: string, body: string, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest({ socketPath, method: "POST", path: "/v1/exportImage", signal, agent: false });
    sent.once("response", resolve);
    sent.once("error", (cause) => {
      reject(
        signal.aborted
          ? signal.reason
          : new BackupError("engine", `the engine's helper does not answer: ${cause.message}`, { cause }),
      );
    });
    sent.end(body);
  });
}
