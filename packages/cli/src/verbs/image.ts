import { spawn } from "node:child_process";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import { formatBytes } from "../bytes.ts";
import { CliError, usageError } from "../cli-error.ts";
import { type Context, required, type Verb } from "../context.ts";
import { callNode, readAll } from "../node-admin.ts";
import { Progress } from "../output/progress.ts";
import { formatTable } from "../output/table.ts";

interface ImageFlags {
  readonly dataDir?: string;
  readonly output?: "json" | "name";
  readonly name?: string;
}

interface ImageEntry {
  readonly name: string;
  readonly manifestDigest?: string;
  readonly sizeBytes?: number;
}

/** Lists images. */
export const imageLsVerb: Verb = async (context, _args, flags) => {
  const { output, ...engine } = flags as ImageFlags;
  const { images } = JSON.parse(
    await readAll(await callNode(context, engine, { method: "GET", path: "/v1/images" })),
  ) as { images: ImageEntry[] };
  if (output === "json") context.stdout.write(`${JSON.stringify(images, null, 2)}\n`);
  else if (output === "name") context.stdout.write(images.map((image) => `${image.name}\n`).join(""));
  else {
    const rows = images.map((image) => [
      image.name,
      (image.manifestDigest ?? "").slice(0, 19),
      image.sizeBytes === undefined ? "-" : formatBytes(image.sizeBytes),
    ]);
    const { isTTY, columns } = context.stdout;
    context.stdout.write(formatTable(["IMAGE", "DIGEST", "SIZE"], rows, isTTY === true ? { width: columns } : {}));
  }
};

interface PullLine {
  readonly progress?: { readonly doneBytes?: number; readonly totalBytes?: number; readonly [field: string]: unknown };
  readonly image?: ImageEntry;
  readonly error?: { readonly code: string; readonly message: string };
}

/** Pulls an image and shows how far it is. */
export const imagePullVerb: Verb = async (context, args, flags) => {
  const reference = required(args, 0, "image");
  using progress = new Progress(context);
  const path = `/v1/images/pull?reference=${encodeURIComponent(reference)}`;
  const response = await callNode(context, flags as ImageFlags, { method: "POST", path });
  for await (const text of createInterface({ input: response })) {
    const line = JSON.parse(text) as PullLine;
    if (line.error !== undefined) throw new CliError(line.error.message);
    if (line.progress !== undefined) progress.show(`pulling ${reference} ${describeProgress(line.progress)}`);
  }
  progress.clear();
  context.stdout.write(`${reference}\n`);
};

function describeProgress({ doneBytes, totalBytes }: NonNullable<PullLine["progress"]>): string {
  if (doneBytes === undefined) return "";
  return totalBytes === undefined || totalBytes === 0
    ? formatBytes(doneBytes)
    : `${formatBytes(doneBytes)} of ${formatBytes(totalBytes)}`;
}

/** Loads an archive. */
export const imageLoadVerb: Verb = async (context, args, flags) => {
  const { name, ...engine } = flags as ImageFlags;
  const file = required(args, 0, "archive");
  const body = await openArchive(context, file);
  using progress = new Progress(context);
  progress.show(`loading ${file}`);
  const query = new URLSearchParams({
    ...(name !== undefined && { name }),
    ...(file !== "-" && { stem: path.basename(path.resolve(file)) }),
  });
  const text = await readAll(
    await callNode(context, engine, { method: "POST", path: `/v1/images/load?${query.toString()}`, body }),
  );
  progress.clear();
  const { images } = JSON.parse(text) as { images: ImageEntry[] };
  for (const image of images) context.stdout.write(`${image.name}\n`);
};

/** The bytes of an archive; an OCI layout directory is packed on the way, because the node reads one stream and no paths. */
async function openArchive({ stdin, signal }: Context, file: string): Promise<NodeJS.ReadableStream> {
  if (file === "-") return stdin;
  const found = await stat(file).catch((cause: unknown) => {
    throw usageError(`cannot read ${file}: ${(cause as Error).message}`);
  });
  if (!found.isDirectory()) return createReadStream(file);
  await stat(path.join(file, "index.json")).catch(() => {
    throw usageError(`${file} is a directory without index.json: not an OCI layout`);
  });
  return spawn("tar", ["-C", file, "-cf", "-", "."], { stdio: ["ignore", "pipe", "inherit"], signal }).stdout;
}

/** Removes images. */
export const imageRmVerb: Verb = async (context, args, flags) => {
  for (const reference of args) {
    const path = `/v1/images?reference=${encodeURIComponent(reference)}`;
    const text = await readAll(await callNode(context, flags as ImageFlags, { method: "DELETE", path }));
    const { removed } = JSON.parse(text) as { removed: ImageEntry };
    context.stdout.write(`${removed.name} removed\n`);
  }
};
