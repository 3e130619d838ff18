import type { Socket } from "node:net";
import type { User } from "./access/caller.ts";

/**
 * A tunnel through the API server reaches the router over a Unix socket that only the engine's user can open. Its first
 * line says who opened the tunnel; behind it come the bytes of the client, untouched.
 */
const word = "AGENT-SANDBOX-TUNNEL ";

/** Longer than any user with his groups, short enough to be held for every connection. */
const lineBytesMax = 64 * 1024;

/** The line to send ahead of a tunnel's bytes. */
export function tunnelPreamble(user: User): string {
  return `${word}${Buffer.from(JSON.stringify(user)).toString("base64url")}\n`;
}

/** Reads the first line off a connection and leaves the rest in it. Rejects when the line is missing or malformed. */
export async function readTunnelUser(connection: Socket): Promise<User> {
  let bytes = Buffer.alloc(0);
  while (true) {
    const chunk = (connection.read() as Buffer | null) ?? (await nextChunk(connection));
    bytes = Buffer.concat([bytes, chunk]);
    const end = bytes.indexOf(0x0a);
    if (end !== -1) {
      if (end + 1 < bytes.length) connection.unshift(bytes.subarray(end + 1));
      return parseLine(bytes.toString("latin1", 0, end));
    }
    if (bytes.length > lineBytesMax) throw new Error("the tunnel's first line is too long");
  }
}

function nextChunk(connection: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const ended = (): void => reject(new Error("the tunnel ended before it said whose it is"));
    connection.once("end", ended);
    connection.once("error", reject);
    connection.once("readable", () => {
      connection.removeListener("end", ended);
      connection.removeListener("error", reject);
      resolve((connection.read() as Buffer | null) ?? Buffer.alloc(0));
    });
  });
}

function parseLine(line: string): User {
  if (!line.startsWith(word)) throw new Error("the tunnel does not say whose it is");
  const user = JSON.parse(Buffer.from(line.slice(word.length), "base64url").toString("utf8")) as Partial<User> | null;
  if (typeof user?.username !== "string" || !Array.isArray(user.groups))
    throw new Error("the tunnel's user is malformed");
  return user as User;
}
