import { spawn } from "node:child_process";
import type { TestNamespace } from "../node/namespace.ts";

/** Hosts that a sandbox must not reach, or may: all played by one namespace of the test's own, with no route out. */
export const outsideAddresses = {
  public: "93.184.215.14",
  classA: "10.9.9.9",
  classB: "172.16.5.5",
  classC: "192.168.7.7",
  carrier: "100.64.1.1",
  metadata: "169.254.169.254",
} as const;

/** The machine's own; another first on the PATH may be unreadable to others. */
export const python = "/usr/bin/python3";

export const uplink = "198.51.100.1";
const beyond = "198.51.100.2";

/** Port of everything that answers. */
export const servicePort = 8080;

/** Answers every connection and every datagram with one word; argv: addresses, port. A datagram is answered from the address it came to. */
const answering = `
import socket, sys, threading
port = int(sys.argv[2])
def datagrams(u):
  while True:
    d, a = u.recvfrom(64); u.sendto(b"reached", a)
for address in sys.argv[1].split(","):
  u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind((address, port))
  threading.Thread(target=datagrams, args=(u,), daemon=True).start()
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", port)); s.listen(64)
print("open", flush=True)
while True:
  c, _ = s.accept(); c.sendall(b"reached"); c.close()
`;

/** Gives the engine's namespace an uplink with the outside hosts behind it, and starts services there and on the engine's own host. */
export async function openOutside(
  place: TestNamespace,
  { podCidr, gateway }: { readonly podCidr: string; readonly gateway: string },
): Promise<Disposable> {
  const script = `
set -e
ip netns add outside
ip link add up0 type veth peer name down0 netns outside
ip addr add ${uplink}/30 dev up0 && ip link set up0 up
ip route add default via ${beyond}
ip -n outside addr add ${beyond}/30 dev down0 && ip -n outside link set down0 up && ip -n outside link set lo up
ip -n outside route add ${podCidr} via ${uplink}
${Object.values(outsideAddresses)
  .map((address) => `ip -n outside addr add ${address}/32 dev lo`)
  .join("\n")}
sysctl -qw net.ipv4.ip_forward=1`;
  place.must("sh", "-c", script);
  const there = Object.values(outsideAddresses).join(",");
  const here = `127.0.0.1,${uplink},${gateway}`;
  const service = (addresses: string): string[] => [python, "-c", answering, addresses, String(servicePort)];
  const servers = [
    await startService(place, "ip", "netns", "exec", "outside", ...service(there)),
    await startService(place, ...service(here)),
  ];
  return {
    [Symbol.dispose]: () => {
      for (const kill of servers) kill();
      place.must("sh", "-c", "ip link del up0; ip netns del outside");
    },
  };
}

async function startService(place: TestNamespace, ...argv: readonly string[]): Promise<() => void> {
  const [program, args] = place.inside(...argv);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => child.stdout.once("data", resolve));
  return () => void child.kill("SIGKILL");
}

/** The server as a pod runs it, as one argv. */
export function answeringCommand(ports: readonly number[]): string[] {
  const all = ports.map((port) => `${python} -u -c "$SERVER" 0.0.0.0 ${port} & `).join("");
  return ["sh", "-c", `${all} wait`];
}

/** The environment \`answeringCommand\` needs. */
export const answeringEnvironment = [{ name: "SERVER", value: answering.replaceAll("$", "$$") }];
