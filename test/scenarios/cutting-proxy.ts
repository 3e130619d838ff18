import net from "node:net";

/** A TCP proxy whose connections can be cut, as a bad network does. */
export class CuttingProxy {
  readonly #server: net.Server;
  readonly #open = new Set<net.Socket>();

  constructor(host: string, port: number) {
    this.#server = net.createServer((near) => this.#serve(near, net.connect(port, host)));
  }

  /** Listens; resolves with the port. */
  async start(): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return (this.#server.address() as net.AddressInfo).port;
  }

  /** Ends every connection at once, in both directions. */
  cut(): void {
    for (const socket of this.#open) socket.resetAndDestroy();
  }

  /** Stops listening. */
  close(): void {
    this.#server.close();
    this.cut();
  }

  #serve(near: net.Socket, far: net.Socket): void {
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#open.add(from);
      from.pipe(to);
      // A connection that was cut is what this proxy is for.
      from.on("error", () => to.destroy());
      from.on("close", () => {
        this.#open.delete(from);
        to.destroy();
      });
    }
  }
}
