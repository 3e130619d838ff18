// Runs inside a test's network namespace and stands before a real registry, in two parts:
//
//   node test/node/registry-guard.ts '<GuardOptions as JSON>'
//
// The token service signs what the registry's `token` authentication wants. The cutter passes requests on and breaks off the first
// answer for every large blob in the middle; it says on standard output what it was asked for.
import { createPrivateKey, sign, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import http from "node:http";

/** What the two parts get. */
export interface GuardOptions {
  readonly registryPort: number;
  readonly tokenPort: number;
  readonly cutterPort: number;
  readonly keyFile: string;
  readonly certFile: string;
  readonly user: string;
  readonly password: string;
  /** Blobs of at least this size are cut and served slowly. */
  readonly largeBytes: number;
}

/** How long a large blob takes. */
const largeMs = 3_000;

/** Pieces a large blob is sent in. */
const pieces = 30;

const options = JSON.parse(process.argv[2] ?? "{}") as GuardOptions;

const tokens = http.createServer((request, response) => {
  const { user, password } = options;
  const expected = `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
  if (request.headers.authorization !== expected) return void response.writeHead(401).end();
  const query = new URL(request.url ?? "/", "http://guard").searchParams;
  const [, name = "", actions = ""] = (query.get("scope") ?? "").split(":");
  const access = [{ type: "repository", name, actions: actions.split(",") }];
  response.end(JSON.stringify({ token: issue(query.get("service") ?? "", access) }));
});

function issue(audience: string, access: unknown): string {
  const nowS = Math.floor(Date.now() / 1000);
  const chain = [new X509Certificate(readFileSync(options.certFile)).raw.toString("base64")];
  const claims = { iss: "guard", sub: options.user, aud: audience, exp: nowS + 300, nbf: nowS - 10, iat: nowS, access };
  const text = [
    { typ: "JWT", alg: "ES256", x5c: chain },
    { ...claims, jti: String(nowS) },
  ]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  const key = createPrivateKey(readFileSync(options.keyFile));
  return `${text}.${sign("sha256", Buffer.from(text), { key, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
}

const wasCut = new Set<string>();
let underway = 0;

const cutter = http.createServer((request, response) => {
  const { method, url = "/", headers } = request;
  const target = { port: options.registryPort, host: "127.0.0.1", method, path: url, headers };
  const passed = http.request(target, (answer) => {
    const chunks: Buffer[] = [];
    answer.on("data", (chunk: Buffer) => chunks.push(chunk));
    answer.on("end", () => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      const bytes = Buffer.concat(chunks);
      const isLarge = Number(answer.headers["content-length"]) >= options.largeBytes && url.includes("/blobs/");
      if (!isLarge) return void response.end(bytes);
      underway += 1;
      process.stdout.write(`blob at-once=${underway} range=${headers.range ?? "none"}\n`);
      const isCut = !wasCut.has(url);
      wasCut.add(url);
      void serveSlowly(response, isCut ? bytes.subarray(0, bytes.length / 2) : bytes).then(() => {
        underway -= 1;
        if (isCut) response.destroy();
        else response.end();
      });
    });
  });
  passed.end();
});

async function serveSlowly(response: http.ServerResponse, bytes: Buffer): Promise<void> {
  const size = Math.ceil(bytes.length / pieces);
  for (let from = 0; from < bytes.length; from += size) {
    await new Promise((resolve) => response.write(bytes.subarray(from, from + size), resolve));
    await new Promise((resolve) => setTimeout(resolve, largeMs / 2 / pieces));
  }
}

tokens.listen(options.tokenPort, "127.0.0.1", () =>
  cutter.listen(options.cutterPort, "127.0.0.1", () => process.stdout.write("open\n")),
);
