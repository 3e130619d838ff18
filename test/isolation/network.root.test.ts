import { writeFileSync } from "node:fs";
import path from "node:path";
import { type NetworkPolicy, networkPolicies, type Service, services } from "@agent-sandbox/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RealEngine, until } from "../node/real-engine.ts";
import {
  answeringCommand,
  answeringEnvironment,
  openOutside,
  outsideAddresses,
  python,
  servicePort,
  uplink,
} from "./outside.ts";
import { reachable, reachableFromHost, type Target } from "./probe.ts";

let engine: RealEngine;
let outside: Disposable;
let neighbour: string;
let gateway: string;

const nobody = 65_534;
const daemonPort = 49_900;

beforeAll(async () => {
  engine = await RealEngine.open();
  gateway = `${engine.podCidr().split(".").slice(0, 2).join(".")}.0.1`;
  outside = await openOutside(engine.place, { podCidr: engine.podCidr(), gateway });
  const container = {
    name: "main",
    image: "host",
    command: answeringCommand([servicePort]),
    env: answeringEnvironment,
  };
  const metadata = { name: "neighbour", namespace: "default", labels: { app: "web" } };
  await Promise.all([
    engine.startPod("prisoner"),
    engine.startPod("neighbour", { metadata, spec: { containers: [container] } }),
  ]);
  await engine.readyPod("prisoner");
  neighbour = (await engine.readyPod("neighbour")).status?.podIP ?? "";
  // The neighbour's interpreter takes a moment; root on the host may reach it, which also shows that it answers.
  await until(() => reachableFromHost(engine, 0, [tcp(neighbour)])[0] === true);
});

afterAll(async () => {
  outside[Symbol.dispose]();
  await engine[Symbol.asyncDispose]();
});

function tcp(address: string, port = servicePort): Target {
  return { address, port, protocol: "TCP" };
}

function both(address: string): Target[] {
  return [tcp(address), { address, port: servicePort, protocol: "UDP" }];
}

/** Runs with the engine's rules taken out of the kernel, and puts them back as they were. */
async function withoutRules<T>(work: () => Promise<T>): Promise<T> {
  const table = `as_${engine.instance}`;
  const saved = path.join(path.dirname(engine.kubeconfig), "rules.nft");
  writeFileSync(saved, engine.place.must("nft", "list", "table", "inet", table));
  engine.place.must("nft", "delete", "table", "inet", table);
  try {
    return await work();
  } finally {
    engine.place.must("nft", "-f", saved);
  }
}

test("isolation network: the public internet is open, and private ranges open only by policy", async () => {
  const { public: open, classA, classB, classC, carrier } = outsideAddresses;
  const ranges = [classA, classB, classC, carrier].flatMap(both);
  expect(await reachable(engine, { name: "prisoner" }, [...both(open), ...ranges])).toEqual([
    true,
    true,
    ...ranges.map(() => false),
  ]);
  const policy: NetworkPolicy = {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: "open", namespace: "default" },
    spec: { podSelector: {}, policyTypes: ["Egress"], egress: [{}] },
  };
  await engine.client.create(networkPolicies, policy);
  await expect
    .poll(() => reachable(engine, { name: "prisoner" }, ranges), { timeout: 15_000 })
    .toEqual(ranges.map(() => true));
  // A policy that opens everything opens neither the machine, nor metadata, nor another sandbox.
  const closed = [...both(outsideAddresses.metadata), ...both(gateway), ...both(uplink), tcp(neighbour)];
  expect(await reachable(engine, { name: "prisoner" }, closed)).toEqual(closed.map(() => false));
  await engine.client.delete(networkPolicies, { namespace: "default", name: "open" });
  await expect
    .poll(() => reachable(engine, { name: "prisoner" }, ranges), { timeout: 15_000 })
    .toEqual(ranges.map(() => false));
});

test("isolation network: host services, metadata and other sandboxes answer only once the rules are gone", async () => {
  const targets = [
    ...both(gateway),
    ...both(uplink),
    ...both(outsideAddresses.metadata),
    ...both(neighbour),
    tcp(neighbour, daemonPort),
  ].filter(({ port, protocol }) => port !== daemonPort || protocol === "TCP");
  expect(await reachable(engine, { name: "prisoner" }, targets)).toEqual(targets.map(() => false));
  const open = targets.filter(({ port }) => port !== daemonPort);
  // The sandbox's own daemon carries the command; its connection is established before the rules go.
  expect(await withoutRules(() => reachable(engine, { name: "prisoner" }, open))).toEqual(open.map(() => true));
  expect(await reachable(engine, { name: "prisoner" }, open)).toEqual(open.map(() => false));
});

test("isolation network: names resolve over UDP and TCP although the host is closed", async () => {
  const web: Service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "web", namespace: "default" },
    spec: { clusterIP: "None", selector: { app: "web" }, ports: [{ port: servicePort }] },
  };
  await engine.client.create(services, web);
  const resolve = async (name: string, options = ""): Promise<string> => {
    const script = `RES_OPTIONS=${options} ${python} -c 'import socket; print(socket.gethostbyname("${name}"))'`;
    return (await engine.sh("prisoner", script)).stdout.trim();
  };
  await until(async () => (await resolve("web")) === neighbour);
  const pod = `${neighbour.replaceAll(".", "-")}.default.pod.cluster.local`;
  for (const name of ["web.default", "web.default.svc.cluster.local", pod])
    expect([name, await resolve(name), await resolve(name, "use-vc")]).toEqual([name, neighbour, neighbour]);
  expect(await resolve("nothing.default.svc.cluster.local")).toBe("");
});

test("isolation network: another user of the host cannot reach a sandbox, root can", () => {
  const targets = [...both(neighbour), tcp(neighbour, daemonPort)];
  expect(reachableFromHost(engine, nobody, targets)).toEqual([false, false, false]);
  expect(reachableFromHost(engine, 0, both(neighbour))).toEqual([true, true]);
  expect(reachableFromHost(engine, nobody, both("127.0.0.1"))).toEqual([true, true]);
});

test("isolation network: IPv6 is closed, though the sandbox speaks it to itself", async () => {
  const script = `
import socket
def reach(address):
  s = socket.socket(socket.AF_INET6); s.settimeout(2)
  try: s.connect(address); return "y"
  except OSError: return "n"
own = socket.socket(socket.AF_INET6); own.bind(("::1", 7000)); own.listen(8)
outside = [("fe80::1", 7000, 0, 2), ("fd00::1", 7000), ("2001:db8::1", 7000), ("::ffff:${uplink}", ${servicePort})]
print("".join(map(reach, [("::1", 7000), *outside])))`;
  expect((await engine.run("prisoner", [python, "-c", script])).stdout).toBe("ynnnn\n");
});
