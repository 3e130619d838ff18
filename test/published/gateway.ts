// The data plane of a Gateway, inside a test's network namespace: plain HTTP in front of the engine's router, to which it shows a
// credential of its own, because the published clients show none:
//
//   node test/published/gateway.ts <address> <router port> <token>
import http from "node:http";
import https from "node:https";

const [address = "", port = "", token = ""] = process.argv.slice(2);
// The namespace is the test's own; whose certificate it is does not matter here.
const agent = new https.Agent({ keepAlive: true, rejectUnauthorized: false });
const hopByHop = new Set(["connection", "transfer-encoding", "host", "authorization", "keep-alive"]);

function endToEnd(raw: readonly string[]): Record<string, string> {
  const pairs = raw.flatMap((name, index) => (index % 2 === 0 ? [[name, raw[index + 1] ?? ""] as const] : []));
  return Object.fromEntries(pairs.filter(([name]) => !hopByHop.has(name.toLowerCase())));
}

http
  .createServer((request, response) => {
    const { method, url: path, rawHeaders } = request;
    const headers = { ...endToEnd(rawHeaders), Authorization: `Bearer ${token}` };
    const forwarded = https.request({ host: "127.0.0.1", port, method, path, headers, agent }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, endToEnd(answer.rawHeaders));
      response.flushHeaders();
      answer.pipe(response);
    });
    forwarded.once("error", () => response.destroy());
    response.once("close", () => forwarded.destroy());
    request.pipe(forwarded);
  })
  .listen(80, address, () => process.stdout.write("open\n"));
