import type { Credentials } from "./credentials.ts";
import type { HttpCarrier } from "./http-carrier.ts";
import { Http1 } from "./http1.ts";
import { Http2 } from "./http2.ts";
import { connectTls } from "./tls-connection.ts";
import type { KubeRequest, KubeResponse, Transport, UpgradedConnection, UpgradeRequest } from "./transport.ts";

/** How to speak to the server. */
export interface HttpTransportOptions {
  /** `auto`: HTTP/2 where the server offers it (it shares one connection), else HTTP/1.1. Default `auto`. */
  readonly protocol?: "auto" | "http1" | "http2";
}

/** Makes a transport over TCP and TLS. Idle connections do not keep the process alive. */
export function httpTransport(credentials: Credentials, options: HttpTransportOptions = {}): Transport {
  return new HttpTransport(credentials, options);
}

class HttpTransport implements Transport {
  readonly #credentials: Credentials;
  readonly #basePath: string;
  readonly #protocol: "auto" | "http1" | "http2";
  readonly #http1: Http1;
  #carrier: Promise<HttpCarrier> | undefined;

  constructor(credentials: Credentials, { protocol = "auto" }: HttpTransportOptions) {
    const { pathname, protocol: scheme } = new URL(credentials.server);
    this.#credentials = credentials;
    this.#basePath = pathname.replace(/\/+$/, "");
    // HTTP/2 without TLS has no negotiation, and no API server offers it.
    this.#protocol = scheme === "https:" ? protocol : "http1";
    this.#http1 = new Http1(credentials);
  }

  async request(request: KubeRequest): Promise<KubeResponse> {
    request.signal?.throwIfAborted();
    const authorized = await this.#authorize(request);
    const carrier = await (this.#carrier ??= this.#negotiate().catch((error: unknown) => {
      this.#carrier = undefined;
      throw error;
    }));
    return carrier.request(authorized);
  }

  async upgrade(request: UpgradeRequest): Promise<UpgradedConnection> {
    request.signal?.throwIfAborted();
    return this.#http1.upgrade({ ...(await this.#authorize(request)), protocol: request.protocol });
  }

  async close(): Promise<void> {
    this.#http1.close();
    await this.#carrier?.then(
      (carrier) => carrier.close(),
      () => undefined,
    );
  }

  async #authorize(request: KubeRequest): Promise<KubeRequest> {
    const headers = { ...request.headers, ...(await this.#credentials.authorize?.()) };
    return { ...request, path: this.#basePath + request.path, headers };
  }

  async #negotiate(): Promise<HttpCarrier> {
    if (this.#protocol === "http1") return this.#http1;
    const offers = this.#protocol === "http2" ? ["h2"] : ["h2", "http/1.1"];
    const socket = await connectTls(this.#credentials, offers);
    if (socket.alpnProtocol === "h2") return new Http2(this.#credentials, socket);
    this.#http1.adopt(socket);
    return this.#http1;
  }
}
