import { createServer } from "node:http";
import path from "node:path";
import { expect, test } from "vitest";
import { ArchiveWriter } from "../backup/archive-writer.ts";
import { temporaryDirectory } from "../store/testing/temporary-directory.ts";
import { exportImage, imagePart } from "./export-image.ts";

async function* none(): AsyncGenerator<Uint8Array> {}

test("exportImage: a helper that ends while it sends is said in one sentence", async () => {
  using place = temporaryDirectory();
  const socketPath = path.join(place.path, "host.sock");
  const server = createServer((_request, response) => {
    response.writeHead(200, { "content-length": "1000", "image-size-bytes": "1000", "paused-ms": "1" });
    response.write("only the beginning", () => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  const image = { kind: "volume", id: "pvc-1" } as const;
  const found = await exportImage(socketPath, image, { pauseMaxMs: 1_000, signal: new AbortController().signal });
  const archive = new ArchiveWriter(async () => {}, 0);
  const added = archive.add({ name: imagePart(image), sizeBytes: 1000, bytes: found?.bytes ?? none() });
  await expect(added).rejects.toMatchObject({
    name: "BackupError",
    code: "engine",
    message: expect.stringMatching(
      /^host\/volumes\/pvc-1\.img could not be copied: the engine's helper ended \(.*\); try again$/,
    ) as string,
  });
  server.close();
});

test("ArchiveWriter: a part that has fewer bytes than it was said to have is an error of the engine", async () => {
  const archive = new ArchiveWriter(async () => {}, 0);
  await expect(archive.add({ name: "x", sizeBytes: 2, bytes: none() })).rejects.toMatchObject({ code: "engine" });
});
