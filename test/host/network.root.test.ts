import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { AllowRule, EndpointRules, RuleSet } from "../../packages/server/src/node/host/ruleset.ts";
import { containerOf, processOf, runOnHostUsr } from "./contract-case.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
const servers: ChildProcess[] = [];

/** Addresses of the test's own world; nothing of it has a route out. */
const gateway = "10.201.0.1";
const boxA = "10.201.0.2";
const boxB = "10.201.0.3";
const asleep = "10.201.0.9";
const hostAddress = "203.0.113.1";
const publicPeer = "203.0.113.2";
const privatePeer = "192.168.77.2";
const metadata = "169.254.169.254";

const everything: readonly AllowRule[] = [{}];
const rulesOf = (
  more: Partial<RuleSet> = {},
  a: Partial<EndpointRules> = {},
  b: Partial<EndpointRules> = {},
): RuleSet => ({
  endpoints: [
    { slot: 1, address: boxA, ingress: [], egress: [], ...a },
    { slot: 2, address: boxB, ingress: [], egress: [], ...b },
  ],
  gatewayPorts: [{ protocol: "TCP", port: 53 }],
  sleeping: [],
  ...more,
});

const connectScript = `import socket,sys
s=socket.socket(); s.settimeout(0.8)
try:
  s.connect((sys.argv[1],int(sys.argv[2]))); print(s.recv(64).decode() or "empty")
except Exception as e: print("closed")`;

const serveScript = `import socket,sys
s=socket.socket(); s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1); s.bind((sys.argv[1],int(sys.argv[2]))); s.listen(64); print("ready",flush=True)
while True:
  c,a=s.accept(); c.send(("open "+a[0]).encode()); c.close()`;

/** What a sandbox gets from a TCP port: `open <source>` or `closed`. */
async function fromBox(id: string, address: string, port: number): Promise<string> {
  const process = processOf("/usr/bin/python3", "-c", connectScript, address, String(port));
  await using stream = await real.host.exec({ id, process, stdin: false });
  let text = "";
  for await (const chunk of stream.stdout) text += String(chunk);
  return text.trim();
}

function fromHost(user: number, address: string, port: number): string {
  const argv = ["/usr/bin/python3", "-c", connectScript, address, String(port)];
  return real.runInside("setpriv", `--reuid=${user}`, "--clear-groups", ...argv).stdout.trim();
}

async function serve(namespace: string | undefined, address: string, port: number): Promise<void> {
  const into = namespace === undefined ? [] : ["ip", "netns", "exec", namespace];
  const [program, args] = real.inside(...into, "python3", "-c", serveScript, address, String(port));
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "ignore"] });
  servers.push(child);
  await once(child.stdout as NonNullable<typeof child.stdout>, "data");
}

beforeAll(async () => {
  real = await RealHost.open();
  const { host } = real;
  await host.ensureNetwork({ cidr: "10.201.0.0/16", gateway });
  const world = `set -e; ip netns add peer; ip link add out type veth peer name eth0 netns peer
    ip addr add ${hostAddress}/24 dev out; ip link set out up; ip -n peer link set lo up; ip -n peer link set eth0 up
    for a in ${publicPeer}/24 ${privatePeer}/32 ${metadata}/32; do ip -n peer addr add $a dev eth0; done
    ip route add ${privatePeer} dev out; ip route add ${metadata} dev out; ip -n peer route add default via ${hostAddress}`;
  expect(real.runInside("sh", "-c", world).status).toBe(0);
  await serve("peer", "0.0.0.0", 8080);
  await serve(undefined, "0.0.0.0", 9090);
  await serve(undefined, gateway, 53);
  for (const [index, address] of [boxA, boxB].entries()) {
    const slot = index + 1;
    await host.ensureSlot({ slot });
    await host.assignSlot({ slot, address });
    const id = slot === 1 ? "box-a" : "box-b";
    const argv = ["/usr/bin/python3", "-c", serveScript, "0.0.0.0", "8000"];
    await runOnHostUsr(host, containerOf(id, "runsc", argv, { slot }));
  }
});
beforeEach(() => real.host.applyRules(rulesOf()));
afterAll(async () => {
  for (const server of servers) server.kill("SIGKILL");
  await real[Symbol.asyncDispose]();
});

const bridgeSwitch = "/proc/sys/net/bridge/bridge-nf-call-iptables";
const bridgeValues = existsSync(bridgeSwitch) ? ["0", "1"] : ["absent"];

test.for(bridgeValues)("host rules: without a rule nothing passes (bridge netfilter %s)", async (value) => {
  if (value !== "absent") real.runInside("sh", "-c", `echo ${value} > ${bridgeSwitch}`);
  for (const [address, port] of [
    [publicPeer, 8080],
    [privatePeer, 8080],
    [metadata, 8080],
    [hostAddress, 9090],
    [gateway, 9090],
    [boxB, 8000],
  ] as const) {
    expect([address, await fromBox("box-a", address, port)]).toEqual([address, "closed"]);
  }
  expect(await fromBox("box-a", gateway, 53)).toBe(`open ${boxA}`);
});

test("host slot: to assign again what a sandbox runs on changes nothing for it", async () => {
  for (let again = 0; again < 3; again += 1) {
    await real.host.assignSlot({ slot: 1, address: boxA });
    expect(await fromBox("box-a", gateway, 53)).toBe(`open ${boxA}`);
  }
});

test("host slot: a sandbox has its network although processes of the one before were still there when it was assigned", async () => {
  const { host } = real;
  const again = { slot: 3, address: "10.201.0.4" };
  const { namespace } = await host.ensureSlot({ slot: again.slot });
  await host.assignSlot(again);
  await host.applyRules({ ...rulesOf(), endpoints: [{ ...again, ingress: [], egress: [] }] });
  const argv = ["/usr/bin/python3", "-c", serveScript, "0.0.0.0", "8000"];
  await runOnHostUsr(host, containerOf("box-c", "runsc", argv, { slot: again.slot }));
  await host.deleteContainer({ id: "box-c" });
  // The last of its processes, as slow as on a busy machine.
  const where = real.runInside("find", "/run", "-name", namespace).stdout.trim();
  const [program, args] = real.inside("nsenter", `--net=${where}`, "sh", "-c", "echo here; exec sleep 60");
  const last = spawn(program, args, { stdio: ["ignore", "pipe", "ignore"] });
  servers.push(last);
  await once(last.stdout as NonNullable<typeof last.stdout>, "data");
  await host.assignSlot(again);
  last.kill("SIGKILL");
  await runOnHostUsr(host, containerOf("box-d", "runsc", argv, { slot: again.slot }));
  await expect.poll(() => fromHost(0, again.address, 8000), { timeout: 15_000 }).toBe(`open ${gateway}`);
  await host.deleteContainer({ id: "box-d" });
  await host.releaseSlot({ slot: again.slot });
});

test("host rules: egress opens what it names, masqueraded, and never the host or metadata", async () => {
  await real.host.applyRules(rulesOf({}, { egress: everything }));
  expect(await fromBox("box-a", publicPeer, 8080)).toBe(`open ${hostAddress}`);
  expect(await fromBox("box-a", privatePeer, 8080)).toBe(`open ${hostAddress}`);
  for (const [address, port] of [
    [metadata, 8080],
    [hostAddress, 9090],
    [gateway, 9090],
    [boxB, 8000],
  ] as const) {
    expect([address, await fromBox("box-a", address, port)]).toEqual([address, "closed"]);
  }
  const blocks = [{ cidr: "0.0.0.0/0", except: ["192.168.0.0/16", "192.168.77.0/24"] }];
  await real.host.applyRules(rulesOf({}, { egress: [{ blocks, ports: [{ protocol: "TCP", port: 8080 }] }] }));
  expect(await fromBox("box-a", publicPeer, 8080)).toBe(`open ${hostAddress}`);
  expect(await fromBox("box-a", privatePeer, 8080)).toBe("closed");
});

test("host rules: a forbidden address is reachable once the table is gone", async () => {
  await real.dropRules();
  real.runInside("ip", "-n", "peer", "route", "add", "10.201.0.0/16", "via", hostAddress);
  expect(await fromBox("box-a", metadata, 8080)).toBe(`open ${boxA}`);
  expect(await fromBox("box-a", hostAddress, 9090)).toBe(`open ${boxA}`);
  expect(await fromBox("box-a", boxB, 8000)).toBe(`open ${boxA}`);
});

test("host rules: between sandboxes both sides must allow", async () => {
  const toB = [{ blocks: [{ cidr: `${boxB}/32` }] }];
  const fromA = [
    { blocks: [{ cidr: `${boxA}/32` }], ports: [{ protocol: "TCP", port: 7999, endPort: 8000 } as const] },
  ];
  await real.host.applyRules(rulesOf({}, { egress: toB }, {}));
  expect(await fromBox("box-a", boxB, 8000)).toBe("closed");
  await real.host.applyRules(rulesOf({}, {}, { ingress: fromA }));
  expect(await fromBox("box-a", boxB, 8000)).toBe("closed");
  await real.host.applyRules(rulesOf({}, { egress: toB }, { ingress: fromA }));
  expect(await fromBox("box-a", boxB, 8000)).toBe(`open ${boxA}`);
  expect(await fromBox("box-b", boxA, 8000)).toBe("closed");
});

test("host rules: of the machine's users only root and the engine reach a sandbox", () => {
  expect(fromHost(0, boxA, 8000)).toBe(`open ${gateway}`);
  expect(fromHost(12345, boxA, 8000)).toBe("closed");
});

test("host rules: a refused set leaves the one before in force", async () => {
  await real.host.applyRules(rulesOf({}, { egress: everything }));
  const twice = rulesOf();
  const wrong = { ...twice, endpoints: [...twice.endpoints, ...twice.endpoints] };
  await expect(real.host.applyRules(wrong)).rejects.toMatchObject({ code: "invalid-argument" });
  expect(await fromBox("box-a", publicPeer, 8080)).toBe(`open ${hostAddress}`);
});

test("host rules: another source address than its own is dropped", async () => {
  const spoof = `import socket,struct
s=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_RAW)
h=struct.pack("!BBHHHBBH4s4s",0x45,0,0,1,0,64,1,0,socket.inet_aton("10.201.0.77"),socket.inet_aton("${publicPeer}"))
[s.sendto(h+struct.pack("!BBHHH",8,0,0xf7ff,0,0),("${publicPeer}",0)) for _ in range(5)]; print("sent")`;
  await real.host.applyRules(rulesOf({}, { egress: everything }));
  const counter =
    "nft add table ip probe; nft 'add chain ip probe c { type filter hook prerouting priority 0; }'; nft add rule ip probe c ip saddr 10.201.0.77 counter";
  expect(real.runInside("sh", "-c", counter).status).toBe(0);
  const process = { ...processOf("/usr/bin/python3", "-c", spoof), capabilities: ["CAP_NET_RAW"] };
  const seen = async () => {
    await using stream = await real.host.exec({ id: "box-a", process, stdin: false });
    expect(await stream.exit).toBe(0);
    return /packets (\d+)/.exec(real.runInside("nft", "list", "table", "ip", "probe").stdout)?.[1];
  };
  expect(await seen()).toBe("0");
  await real.dropRules();
  expect(Number(await seen())).toBeGreaterThan(0);
  real.runInside("nft", "delete", "table", "ip", "probe");
});

test("host sleeping address: a list that is out of date takes no address from its slot", async () => {
  const { host } = real;
  const woken = "10.201.0.77";
  const route = (): string => real.runInside("ip", "-o", "route", "show", woken).stdout.trim();
  await host.ensureSlot({ slot: 7 });
  await host.assignSlot({ slot: 7, address: woken });
  const before = route();
  expect(before).not.toBe("");
  await host.applyRules(rulesOf({ sleeping: [{ address: woken, ingress: everything }] }));
  await host.applyRules(rulesOf());
  expect(route()).toBe(before);
  await host.releaseSlot({ slot: 7 });
  await host.applyRules(rulesOf({ sleeping: [{ address: woken, ingress: everything }] }));
  expect(route()).not.toBe("");
  await host.applyRules(rulesOf());
  expect(route()).toBe("");
});

test("host sleeping address: a slot that goes leaves its address to who sleeps", async () => {
  const { host } = real;
  const address = "10.201.0.78";
  const route = (): string => real.runInside("ip", "-o", "route", "show", address).stdout.trim();
  await host.ensureSlot({ slot: 8 });
  await host.assignSlot({ slot: 8, address });
  await host.applyRules(rulesOf({ sleeping: [{ address, ingress: everything }] }));
  const before = route();
  await host.releaseSlot({ slot: 8 });
  expect(route()).not.toBe("");
  expect(route()).not.toBe(before);
  await host.applyRules(rulesOf());
  expect(route()).toBe("");
});

test("host sleeping address: a connection is held, reported and handed over when the sandbox wakes", async () => {
  const { host } = real;
  const awake = { slot: 4, address: asleep, ingress: everything, egress: [] };
  await host.applyRules(rulesOf({ sleeping: [{ address: asleep, ingress: everything }] }, { egress: everything }));
  const fromSandbox = fromBox("box-b", asleep, 8000);
  expect(await fromSandbox).toBe("closed");
  const { connections, count } = await host.waitHeld({ waitMs: 50, after: 0 });
  expect(connections).toEqual([]);
  const answer = (async () => {
    const process = processOf("/usr/bin/python3", "-c", connectScript.replace("0.8", "20"), asleep, "8000");
    await using stream = await host.exec({ id: "box-a", process, stdin: false });
    let text = "";
    for await (const chunk of stream.stdout) text += String(chunk);
    return text.trim();
  })();
  expect((await host.waitHeld({ waitMs: 10_000, after: count })).connections).toEqual([
    { address: asleep, port: 8000, source: boxA },
  ]);
  await host.ensureSlot({ slot: 4 });
  await host.assignSlot({ slot: 4, address: asleep });
  const argv = ["/usr/bin/python3", "-c", serveScript, "0.0.0.0", "8000"];
  await runOnHostUsr(host, containerOf("box-w", "runsc", argv, { slot: 4, stdoutPath: "logs/box-w" }));
  const rules = rulesOf({}, { egress: everything });
  await host.applyRules({ ...rules, endpoints: [...rules.endpoints, awake] });
  await expect.poll(() => real.readOutput("logs/box-w"), { timeout: 10_000 }).toContain("ready");
  expect(await host.handOver({ address: asleep })).toEqual({ connections: 1 });
  expect(await answer).toBe(`open ${gateway}`);
  expect(await fromBox("box-a", asleep, 8000)).toBe(`open ${boxA}`);
});

test("host held address: of callers at the very moment of falling asleep and of waking none is lost", async () => {
  const { host } = real;
  const restless = { slot: 5, address: "10.201.0.10", ingress: everything, egress: [] };
  const { slot, address, ingress } = restless;
  await host.ensureSlot({ slot });
  await host.assignSlot({ slot, address });
  const argv = ["/usr/bin/python3", "-c", serveScript, "0.0.0.0", "8000"];
  await runOnHostUsr(host, containerOf("box-r", "runsc", argv, { slot, stdoutPath: "logs/box-r" }));
  const rules = rulesOf({}, { egress: everything });
  const awake = { ...rules, endpoints: [...rules.endpoints, restless] };
  await host.applyRules(awake);
  await expect.poll(() => real.readOutput("logs/box-r"), { timeout: 10_000 }).toContain("ready");
  const caller = `import socket,threading,time
lost=[]; end=time.time()+2
def call():
  while time.time()<end:
    s=socket.socket(); s.settimeout(20)
    try:
      s.connect(("${address}",8000)); s.recv(64) or lost.append("empty")
    except Exception as e: lost.append(str(e))
    s.close()
all=[threading.Thread(target=call) for _ in range(4)]
[t.start() for t in all]; [t.join() for t in all]; print(len(lost), set(lost))`;
  let isCalling = true;
  const calling = (async () => {
    await using stream = await host.exec({
      id: "box-a",
      process: processOf("/usr/bin/python3", "-c", caller),
      stdin: false,
    });
    let text = "";
    for await (const chunk of stream.stdout) text += String(chunk);
    isCalling = false;
    return text.trim();
  })();
  // For as long as calls begin. Then it stays awake: a packet that was on its way to a sandbox without a route is sent again after one, three and
  // seven seconds, and would meet the same moment each time.
  const endMs = performance.now() + 2_000;
  for (let round = 0; performance.now() < endMs; round += 1) {
    await host.applyRules({ ...rules, sleeping: [{ address, ingress }] });
    await new Promise((resolve) => setTimeout(resolve, (round * 7) % 40));
    await host.applyRules(awake);
    await host.handOver({ address });
    await new Promise((resolve) => setTimeout(resolve, (round * 11) % 40));
    await host.handOver({ address });
  }
  while (isCalling) {
    await host.handOver({ address });
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(await calling).toBe("0 set()");
  await host.deleteContainer({ id: "box-r" });
  await host.releaseSlot({ slot });
});

test("host held address: who connects before the program listens waits for it, and a change of rules is all it takes", async () => {
  const { host } = real;
  const late = { slot: 6, address: "10.201.0.11", ingress: everything, egress: [] };
  const { slot, address } = late;
  await host.ensureSlot({ slot });
  await host.assignSlot({ slot, address });
  const rules = rulesOf({ revision: "1" }, { egress: everything });
  await host.applyRules({ ...rules, endpoints: [...rules.endpoints, { ...late, held: true }] });
  const { count } = await host.waitHeld({ waitMs: 0, after: 0 });
  const argv = ["/usr/bin/python3", "-c", `import time; time.sleep(2)\n${serveScript}`, "0.0.0.0", "8000"];
  await runOnHostUsr(host, containerOf("box-l", "runsc", argv, { slot, stdoutPath: "logs/box-l" }));
  const answer = (async () => {
    const process = processOf("/usr/bin/python3", "-c", connectScript.replace("0.8", "20"), address, "8000");
    await using stream = await host.exec({ id: "box-a", process, stdin: false });
    let text = "";
    for await (const chunk of stream.stdout) text += String(chunk);
    return text.trim();
  })();
  const { connections } = await host.waitHeld({ waitMs: 10_000, after: count });
  expect(connections).toEqual([{ address, port: 8000, source: boxA }]);
  const nothing = { sleeping: [], removed: [], groups: [], removedGroups: [] };
  const released = { ...nothing, base: "1", revision: "2", endpoints: [late] };
  await expect(host.changeRules({ ...released, base: "0" })).rejects.toMatchObject({ code: "not-found" });
  await host.changeRules(released);
  expect(await host.handOver({ address })).toEqual({ connections: 1 });
  expect(await answer).toBe(`open ${gateway}`);
  expect(await fromBox("box-a", address, 8000)).toBe(`open ${boxA}`);
  await host.changeRules({ ...nothing, base: "2", revision: "3", endpoints: [], removed: [address] });
  expect(await fromBox("box-a", address, 8000)).toBe("closed");
  await host.deleteContainer({ id: "box-l" });
  await host.releaseSlot({ slot });
});
