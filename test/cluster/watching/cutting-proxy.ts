import { connect, createServer, type Socket } from "node:net";

/** A TCP proxy in front of a server that cuts connections in the middle of what they carry. */
export interface CuttingProxy extends AsyncDisposable {
  readonly port: number;
  /** Cuts every connection after a random number of bytes from the server, or none any more. */
  setCutting(isCutting: boolean): void;
  /** Ends all connections, and accepts later ones without forwarding them until `release`. */
  hold(): void;
  release(): void;
}

/**
 * Fewest bytes that pass before a cut: more than a TLS handshake and a list, because a client that cannot list never gets to
 * watch, and waits longer each time.
 */
const passMinBytes = 14_000;
/** Most bytes: a handful of events. */
const passMaxBytes = 30_000;

/** How many of the cuts are resets. */
const resetShare = 0.01;

/** Starts it; where it cuts depends on `random` and on nothing else. */
export async function openCuttingProxy(targetPort: number, random: () => number): Promise<CuttingProxy> {
  const pairs = new Set<readonly [Socket, Socket]>();
  let isCutting = false;
  let held: Array<() => void> | undefined;
  const serve = (client: Socket): void => {
    const server = connect(targetPort, "127.0.0.1");
    const pair = [client, server] as const;
    pairs.add(pair);
    const end = (): void => {
      pairs.delete(pair);
      // Some cuts are resets, as of a host that died; they take back what the client has not read yet, and client-go lists again
      // after a watch that brought nothing. The others end in order, as of a proxy that restarts.
      if (random() < resetShare) client.resetAndDestroy();
      else client.end();
      server.destroy();
    };
    const endsAtBytes = passMinBytes + Math.floor(random() * (passMaxBytes - passMinBytes));
    let passedBytes = 0;
    server.on("data", (bytes: Buffer) => {
      const left = isCutting ? Math.max(0, endsAtBytes - passedBytes) : bytes.length;
      passedBytes += bytes.length;
      // An observer that does not read is not what is tested here, so what it has not read yet may pile up.
      client.write(bytes.subarray(0, left));
      if (left < bytes.length) end();
    });
    client.on("data", (bytes) => void server.write(bytes));
    for (const socket of pair) socket.once("close", end).on("error", () => {}); // A cut is seen as an error by its other end.
  };
  const clients = new Set<Socket>();
  const listener = createServer((client) => {
    clients.add(client);
    client.once("close", () => clients.delete(client)).on("error", () => {}); // The same of one that waits.
    if (held === undefined) serve(client);
    else held.push(() => serve(client));
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const endAll = (): void => {
    for (const pair of pairs) for (const socket of pair) socket.destroy();
  };
  return {
    port: (listener.address() as { port: number }).port,
    setCutting(value) {
      isCutting = value;
    },
    hold() {
      held = [];
      endAll();
    },
    release() {
      const waiting = held ?? [];
      held = undefined;
      for (const go of waiting) go();
    },
    async [Symbol.asyncDispose]() {
      endAll();
      for (const client of clients) client.destroy();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}
