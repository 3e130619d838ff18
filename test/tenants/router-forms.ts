import { once } from "node:events";
import type { IncomingMessage, OutgoingHttpHeaders } from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { type Answer, readAnswer } from "../router/http-call.ts";
import type { Tenant, TenantWorld } from "./tenant-world.ts";

/** A way to a sandbox. Resolves with the namespace of the sandbox that answered, or with `refused: ` and how. */
export type Form = (world: TenantWorld, who: Tenant, whose: Tenant) => Promise<string>;

const bearer = ({ token }: Tenant): OutgoingHttpHeaders => ({ Authorization: `Bearer ${token}` });
const named = ({ namespace }: Tenant): OutgoingHttpHeaders => ({
  "X-Sandbox-ID": "box",
  "X-Sandbox-Namespace": namespace,
});

/** Asks whose sandbox it is. */
export const question = JSON.stringify({ command: "printenv WHOSE" });

interface Call {
  readonly headers?: OutgoingHttpHeaders;
  readonly path?: string;
  readonly method?: string;
  readonly body?: string;
}

async function call(world: TenantWorld, { headers = {}, path = "/execute", method = "POST", body }: Call) {
  const request = https.request({
    host: "127.0.0.1",
    port: world.routerPort,
    servername: "localhost",
    ca: world.engine.credentials.ca,
    agent: false,
    path,
    method,
    headers: { "Content-Type": "application/json", ...headers },
  });
  request.end(body ?? (method === "POST" ? question : undefined));
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return readAnswer(response);
}

/** What an answer of the legacy runtime says. */
export function whoAnswered({ status, text }: Pick<Answer, "status" | "text">): string {
  if (status !== 200) return `refused: ${status}`;
  return (JSON.parse(text) as { stdout: string }).stdout.trim();
}

async function linkTo(world: TenantWorld, who: Tenant, whose: Tenant): Promise<Answer> {
  const body = JSON.stringify({ namespace: whose.namespace, name: "box", port: 49_900 });
  return call(world, { path: "/_agent-sandbox/links", headers: bearer(who), body });
}

/** The cookie that a browser has after it followed a link. */
async function cookieOf(world: TenantWorld, link: string): Promise<string> {
  const first = await call(world, { path: link, method: "GET", headers: { "Sec-Fetch-Site": "same-origin" } });
  return (first.headers["set-cookie"]?.[0] ?? "").split(";")[0] ?? "";
}

const pathOf = ({ namespace }: Tenant): string => `/sandboxes/${namespace}/box/49900/execute`;

/** One's own link, pointed at another's sandbox. */
async function bentLink(world: TenantWorld, who: Tenant, whose: Tenant): Promise<string> {
  const made = await linkTo(world, who, who);
  const { path } = JSON.parse(made.text) as { path: string };
  const bent = path.replace(`/${who.namespace}/`, `/${whose.namespace}/`);
  const Cookie = await cookieOf(world, bent);
  return whoAnswered(await call(world, { path: pathOf(whose), headers: { Cookie } }));
}

async function signedLink(world: TenantWorld, who: Tenant, whose: Tenant): Promise<string> {
  const made = await linkTo(world, who, whose);
  if (made.status !== 201) return `refused: ${made.status}`;
  const Cookie = await cookieOf(world, (JSON.parse(made.text) as { path: string }).path);
  return whoAnswered(await call(world, { path: pathOf(whose), headers: { Cookie } }));
}

async function ownCookie(world: TenantWorld, who: Tenant, whose: Tenant): Promise<string> {
  const { path } = JSON.parse((await linkTo(world, who, who)).text) as { path: string };
  const Cookie = await cookieOf(world, path);
  return whoAnswered(await call(world, { path: pathOf(whose), headers: { Cookie } }));
}

/** `ExecuteRequest{config{command: ["printenv", "WHOSE"]}}` in a gRPC frame. */
function executeFrame(): Buffer {
  const word = (text: string): Buffer => Buffer.concat([Buffer.from([0x0a, text.length]), Buffer.from(text)]);
  const config = Buffer.concat([word("printenv"), word("WHOSE")]);
  const message = Buffer.concat([Buffer.from([0x0a, config.length]), config]);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

async function grpc(world: TenantWorld, who: Tenant, whose: Tenant): Promise<string> {
  const { ca } = world.engine.credentials;
  const session = http2.connect(`https://127.0.0.1:${world.routerPort}`, { ca, servername: "localhost" });
  try {
    const headers = { ...named(whose), ...bearer(who), "X-Sandbox-Port": "9090" } as http2.OutgoingHttpHeaders;
    const stream = session.request({
      ":method": "POST",
      ":path": "/process.v1.ProcessService/Execute",
      "content-type": "application/grpc",
      te: "trailers",
      ...headers,
    });
    stream.end(executeFrame());
    let status: unknown;
    for (const event of ["response", "trailers"])
      stream.on(event, (seen: http2.IncomingHttpHeaders) => (status = seen["grpc-status"] ?? status));
    const chunks: Buffer[] = [];
    for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
    if (status !== "0") return `refused: grpc ${String(status)}`;
    return /red|blue/.exec(Buffer.concat(chunks).toString("latin1"))?.[0] ?? "nothing";
  } finally {
    session.close();
  }
}

/** A request for an upgrade; the daemon offers none, so that its own answer tells that it was reached. */
async function upgrade(world: TenantWorld, who: Tenant, whose: Tenant): Promise<string> {
  const key = Buffer.alloc(16, 7).toString("base64");
  const wish = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key };
  const headers = { ...named(whose), ...bearer(who), ...wish };
  const answer = await call(world, { method: "GET", path: "/no-such-path", headers });
  return answer.status === 404 && !answer.text.includes("Sandbox") ? whose.namespace : `refused: ${answer.status}`;
}

/** The ways through the router that need nothing but its address. */
export const routerForms: Readonly<Record<string, Form>> = {
  header: async (world, who, whose) => whoAnswered(await call(world, { headers: { ...bearer(who), ...named(whose) } })),
  host: async (world, who, whose) => {
    const Host = `49900-box.${whose.namespace}.sandbox.localhost`;
    return whoAnswered(await call(world, { headers: { ...bearer(who), Host } }));
  },
  path: async (world, who, whose) => whoAnswered(await call(world, { headers: bearer(who), path: pathOf(whose) })),
  "own name, other's address": async (world, who, whose) => {
    const headers = { ...bearer(who), ...named(who), "X-Sandbox-Pod-IP": whose.address };
    const seen = whoAnswered(await call(world, { headers }));
    return who !== whose && seen === who.namespace ? "refused: own sandbox instead" : seen;
  },
  "other's name, own address": async (world, who, whose) => {
    const headers = { ...bearer(who), ...named(whose), "X-Sandbox-Pod-IP": who.address };
    return whoAnswered(await call(world, { headers }));
  },
  "own path, other's headers": async (world, who, whose) => {
    const seen = whoAnswered(await call(world, { headers: { ...bearer(who), ...named(whose) }, path: pathOf(who) }));
    return who !== whose && seen === who.namespace ? "refused: own sandbox instead" : seen;
  },
  "signed link": signedLink,
  "own link, other's path": bentLink,
  "own cookie": ownCookie,
  gRPC: grpc,
  upgrade,
};
