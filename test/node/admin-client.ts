import { request } from "node:http";

/** Sends an archive to the node's admin socket, as `image load` does. */
export function postArchive(socketPath: string, archive: Buffer): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath, path: "/v1/images/load", method: "POST" }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () => resolve(JSON.parse(Buffer.concat(chunks).toString())));
    });
    outgoing.on("error", reject);
    outgoing.end(archive);
  });
}
