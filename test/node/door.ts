// Runs inside a test's network namespace and carries connections from a Unix socket to a port there, of loopback unless told otherwise:
//
//   node test/node/door.ts <socket> <port> [host]
import net from "node:net";

const [socketPath = "", port = "", host = "127.0.0.1"] = process.argv.slice(2);

net
  .createServer({ allowHalfOpen: true }, (outer) => {
    // What it carries leaves at once, as it does from those who dial without a door.
    const inner = net.connect({ host, port: Number(port), allowHalfOpen: true, noDelay: true });
    for (const [from, to] of [
      [outer, inner],
      [inner, outer],
    ] as const) {
      from.pipe(to);
      from.once("error", () => to.destroy());
      from.once("close", () => to.destroy());
    }
  })
  .listen(socketPath, () => process.stdout.write("open\n"));
