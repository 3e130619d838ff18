import type { KubeRequest, KubeResponse, Transport } from "@agent-sandbox/kube";

/** A process that dies: after the write that the test names, nothing leaves it any more and no answer arrives. */
export class CrashTransport implements Transport {
  readonly #transport: Transport;
  readonly #onCrash: (request: KubeRequest) => void;
  /** Says of each write whether it is the last one; undefined: no crash is planned. */
  plan: { readonly at: (request: KubeRequest) => boolean } | undefined;
  #dead = false;

  constructor(transport: Transport, onCrash: (request: KubeRequest) => void) {
    this.#transport = transport;
    this.#onCrash = onCrash;
  }

  async request(request: KubeRequest): Promise<KubeResponse> {
    if (this.#dead) return silence(request);
    const response = await this.#transport.request(request);
    if (request.method === "GET" || this.plan?.at(request) !== true) return response;
    this.#dead = true;
    this.#onCrash(request);
    return this.request(request);
  }

  /** Whether the process has died. */
  get isDead(): boolean {
    return this.#dead;
  }

  upgrade(request: Parameters<Transport["upgrade"]>[0]): ReturnType<Transport["upgrade"]> {
    return this.#transport.upgrade(request);
  }

  close(): Promise<void> {
    return this.#transport.close();
  }
}

/** No answer ever: the caller hangs until its signal aborts; a caller without a signal gets an error at once. */
function silence({ signal }: KubeRequest): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal === undefined || signal.aborted) return reject(new Error("the process is dead"));
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
