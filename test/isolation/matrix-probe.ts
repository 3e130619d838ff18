import type { TestNamespace } from "../node/namespace.ts";
import { python } from "./outside.ts";
import type { Target } from "./probe.ts";

/** Where a pod of the matrix takes its orders; root on the host may always reach it. */
const orderPort = 9000;

/**
 * The one process of every pod of the matrix: it answers on its ports, and on order it tries a list of targets at once. The first target is
 * the positive control: only once it has answered, what stays silent for the given time counts as dropped. argv: ports.
 */
const prober = `
import errno, select, socket, sys, threading, time
def datagrams(u):
  while True:
    d, a = u.recvfrom(64); u.sendto(b"reached", a)
def connections(s):
  while True:
    c, _ = s.accept(); c.sendall(b"reached"); c.close()
def listen(port):
  s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", port)); s.listen(128); return s
def probe(targets, quiet):
  poll, tries, answers = select.poll(), {}, ["n"] * len(targets)
  for i, t in enumerate(targets):
    a, p, k = t.split("/")
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if k == "UDP" else socket.SOCK_STREAM); s.setblocking(False)
    e = s.connect_ex((a, int(p)))
    if e not in (0, errno.EINPROGRESS): s.close(); continue
    tries[s.fileno()] = (i, k, s); poll.register(s, select.POLLIN | (select.POLLOUT if i == 0 else 0))
  begun, last, sent, controlled = time.time(), time.time(), 0, False
  while len(tries) > 0 and time.time() - begun < 10 and not (controlled and time.time() - last > quiet):
    if time.time() - sent > 0.1:
      sent = time.time()
      for i, k, s in tries.values():
        if k == "UDP":
          try: s.send(b"x")
          except OSError: pass
    for f, _ in poll.poll(50):
      i, k, s = tries[f]
      try: ok = i == 0 and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 or i > 0 and s.recv(64) == b"reached"
      except OSError: ok = False
      if ok: answers[i] = "y"; last = time.time(); controlled = controlled or i == 0
      del tries[f]; poll.unregister(f); s.close()
  for i, k, s in tries.values(): s.close()
  return "".join(answers)
for port in map(int, sys.argv[1].split(",")):
  u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("0.0.0.0", port))
  threading.Thread(target=datagrams, args=(u,), daemon=True).start()
  threading.Thread(target=connections, args=(listen(port),), daemon=True).start()
orders = listen(${orderPort})
while True:
  c, _ = orders.accept(); f = c.makefile("rw")
  quiet, targets = f.readline().split()
  f.write(probe(targets.split(","), float(quiet)) + "\\n"); f.flush(); c.close()
`;

/** Sends one order to every pod at once and prints the answers, a line each, in their order. stdin: lines of address, quiet, targets. */
const ordering = `
import concurrent.futures as c, socket, sys
def order(line):
  address, rest = line.split(" ", 1)
  try:
    s = socket.create_connection((address, ${orderPort}), 15); s.settimeout(30); f = s.makefile("rw")
    f.write(rest + "\\n"); f.flush(); return f.readline().strip()
  except OSError as e: return "!" + str(e)
lines = sys.stdin.read().splitlines()
with c.ThreadPoolExecutor(len(lines)) as e: print("\\n".join(e.map(order, lines)))
`;

/** The prober as a pod runs it, and what it needs. */
export function proberContainer(ports: readonly number[]): {
  command: string[];
  env: { name: string; value: string }[];
} {
  const command = ["sh", "-c", `exec ${python} -u -c "$PROBER" ${ports.join(",")}`];
  return { command, env: [{ name: "PROBER", value: prober.replaceAll("$", "$$") }] };
}

/** What one pod is asked to try. */
export interface ProbeOrder {
  readonly address: string;
  readonly targets: readonly Target[];
}

/** What every pod reaches, all at once. `quietMs`: silence for this long after the last answer counts as dropped. Undefined: the pod, or its control, did not answer. */
export function probeAll(
  place: TestNamespace,
  orders: readonly ProbeOrder[],
  { gateway, quietMs }: { readonly gateway: string; readonly quietMs: number },
): (readonly boolean[] | undefined)[] {
  const control: Target = { address: gateway, port: 53, protocol: "TCP" };
  const input = orders.map(({ address, targets }) => {
    const list = [control, ...targets].map((target) => `${target.address}/${target.port}/${target.protocol}`).join(",");
    return `${address} ${quietMs / 1000} ${list}`;
  });
  const { stdout, stderr } = place.run([python, "-c", ordering], { input: `${input.join("\n")}\n` });
  const lines = stdout.trim().split("\n");
  if (lines.length !== orders.length) throw new Error(`the order failed: ${stdout}${stderr}`);
  return lines.map((line, index) => {
    const isWhole = line.length === (orders[index]?.targets.length ?? 0) + 1 && line.startsWith("y");
    return isWhole
      ? line
          .slice(1)
          .split("")
          .map((letter) => letter === "y")
      : undefined;
  });
}
