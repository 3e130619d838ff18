import { pods } from "@agent-sandbox/api";
import { createClient, FakeClock, Informer, type KubeRequest, type Transport } from "@agent-sandbox/kube";
import { describe, expect, test } from "vitest";
import { controllerTransport, type TransportFlags } from "./controller-transport.ts";

const plain: TransportFlags = {
  "kube-api-qps": -1,
  "kube-api-burst": 10,
  "api-connections": 1,
  "separate-watch-connection": false,
};

interface Opened {
  readonly transport: Transport;
  /** The paths each connection carried, in the order in which connections were opened. */
  readonly carried: string[][];
  readonly clock: FakeClock;
}

function open(flags: Partial<TransportFlags> = {}): Opened {
  const carried: string[][] = [];
  const clock = new FakeClock();
  const connection = (): Transport => {
    const paths: string[] = [];
    carried.push(paths);
    return {
      request: async ({ path, signal }: KubeRequest) => {
        paths.push(path);
        return { status: 200, headers: {}, body: path.includes("watch=true") ? openWatch(signal) : emptyList() };
      },
      upgrade: () => Promise.reject(new Error("not used")),
      close: async () => void paths.push("closed"),
    };
  };
  return { transport: controllerTransport({ ...plain, ...flags }, connection, clock), carried, clock };
}

/** A watch without events, until it is given up. */
async function* openWatch(signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  yield new Uint8Array();
  await new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve(), { once: true }));
}

async function* emptyList(): AsyncGenerator<Uint8Array> {
  yield Buffer.from(JSON.stringify({ metadata: { resourceVersion: "1" }, items: [] }));
}

const send = async ({ transport }: Opened, count: number, path = "/api/v1/pods/x"): Promise<void> => {
  await Promise.all(Array.from({ length: count }, () => transport.request({ method: "GET", path })));
};

describe("controllerTransport", () => {
  test("controllerTransport: K4 one connection by default", async () => {
    const opened = open();
    await send(opened, 32);
    expect(opened.carried.map(({ length }) => length)).toEqual([32]);
  });

  test("controllerTransport: K4 four connections carry eight of 32 requests each", async () => {
    const opened = open({ "api-connections": 4 });
    await send(opened, 32);
    expect(opened.carried.map(({ length }) => length)).toEqual([8, 8, 8, 8]);
    await opened.transport.close();
    expect(opened.carried.every((paths) => paths.at(-1) === "closed")).toBe(true);
  });

  test("controllerTransport: K4 watches and their lists have a connection of their own", async () => {
    const opened = open({ "separate-watch-connection": true });
    const informer = new Informer({ client: createClient(opened.transport), resource: pods, clock: opened.clock });
    const stop = new AbortController();
    const running = informer.run(stop.signal);
    await informer.synced(stop.signal);
    await send(opened, 3);
    await opened.clock.settled();
    stop.abort(new Error("stopped"));
    await running;
    const [streams = [], requests = []] = opened.carried;
    expect(streams.slice(0, 2)).toEqual(["/api/v1/pods?limit=500", expect.stringContaining("/api/v1/pods?watch=true")]);
    expect(requests).toEqual(Array.from({ length: 3 }, () => "/api/v1/pods/x"));
  });

  test("controllerTransport: --kube-api-qps lets the burst through and paces the rest", async () => {
    const opened = open({ "kube-api-qps": 2, "kube-api-burst": 3 });
    const sent = send(opened, 6);
    await opened.clock.settled();
    expect(opened.carried[0]).toHaveLength(3);
    await opened.clock.advance(500);
    expect(opened.carried[0]).toHaveLength(4);
    await opened.clock.advance(1_000);
    expect(opened.carried[0]).toHaveLength(6);
    await sent;
    await opened.clock.advance(60_000);
    await send(opened, 3);
    expect(opened.carried[0]).toHaveLength(9);
  });

  test("controllerTransport: a request that is given up while it waits is not sent", async () => {
    const opened = open({ "kube-api-qps": 1, "kube-api-burst": 1 });
    await send(opened, 1);
    const stop = new AbortController();
    const waiting = opened.transport.request({ method: "GET", path: "/late", signal: stop.signal });
    stop.abort(new Error("given up"));
    await expect(waiting).rejects.toThrow("given up");
    expect(opened.carried[0]).not.toContain("/late");
  });
});
