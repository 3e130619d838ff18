// Runs inside a test's network namespace and carries connections from a Unix socket to a loopback port there:
//
//   node test/node/door.ts <socket> <port>
import net from "node:net";

const [socketPath = "", port = ""] = process.argv.slice(2);

net
  .createServer({ allowHalfOpen: true }, (outer) => {
    const inner = net.connect({ host: "127.0.0.1", port: Number(port), allowHalfOpen: true });
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
