import { createServer, type Server } from "node:net";
import { expect, test } from "vitest";
import { RegistryClient } from "./registry-client.ts";
import { describeFailure } from "./registry-failure.ts";

const failing = (code: string, message = "x"): Error =>
  new TypeError("fetch failed", { cause: Object.assign(new Error(message), { code }) });

test.each([
  ["ENOTFOUND", "its name cannot be resolved (ENOTFOUND); check that r.example:5000 is spelt right"],
  ["EAI_AGAIN", "no DNS server answers (EAI_AGAIN); check this machine's network"],
  ["ECONNREFUSED", "nothing listens there (ECONNREFUSED); check that the registry runs"],
  ["ENETUNREACH", "there is no route to it (ENETUNREACH)"],
  ["UND_ERR_CONNECT_TIMEOUT", "it does not answer (UND_ERR_CONNECT_TIMEOUT)"],
  [
    "ERR_SSL_WRONG_VERSION_NUMBER",
    'it does not speak TLS (ERR_SSL_WRONG_VERSION_NUMBER); if it is meant to be spoken to in the clear, add "r.example:5000" to "insecure"',
  ],
  [
    "DEPTH_ZERO_SELF_SIGNED_CERT",
    'this machine does not trust (DEPTH_ZERO_SELF_SIGNED_CERT); add the authority\'s PEM file to "caFiles"',
  ],
  ["CERT_HAS_EXPIRED", "its certificate is not valid now (CERT_HAS_EXPIRED)"],
])("describeFailure: %s says what failed and what to set", (code, words) => {
  const said = describeFailure("https://r.example:5000/v2/", failing(code));
  expect(said).toMatch(/^cannot reach https:\/\/r\.example:5000: /);
  expect(said).toContain(words);
});

test("describeFailure: several addresses that fail are told as the first of them, and an unknown code in its own words", () => {
  const refused = Object.assign(new Error("connect ECONNREFUSED ::1:5000"), { code: "ECONNREFUSED" });
  const all = new TypeError("fetch failed", { cause: new AggregateError([refused, refused]) });
  expect(describeFailure("http://localhost:5000/", all)).toContain("nothing listens there");
  expect(describeFailure("http://a.test/", failing("EWEIRD", "odd"))).toBe("cannot reach http://a.test: odd");
});

async function failureOf(url: string): Promise<string> {
  const { signal } = new AbortController();
  const client = new RegistryClient({ endpoint: { url }, repository: "a/b", fetch, signal });
  return client.manifest("1").then(
    () => "",
    (error: Error) => error.message,
  );
}

async function listening(answer: string): Promise<Server & { readonly port: number }> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => socket.end(answer));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return Object.assign(server, { port: (server.address() as { port: number }).port });
}

test("RegistryClient: real failures of a connection are told in words", async () => {
  const free = await listening("");
  const { port } = free;
  await new Promise((resolve) => free.close(resolve));
  expect(await failureOf(`http://127.0.0.1:${port}`)).toContain("nothing listens there (ECONNREFUSED)");
  const plain = await listening("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
  expect(await failureOf(`https://127.0.0.1:${plain.port}`)).toContain("it does not speak TLS");
  plain.close();
  const closed = await listening("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
  expect(await failureOf(`http://127.0.0.1:${closed.port}`)).toContain(
    "wants credentials for a/b; give some in an imagePullSecret of the Pod",
  );
  closed.close();
});
