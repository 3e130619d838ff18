import { once } from "node:events";
import https from "node:https";
import { WebSocket } from "ws";
import { until } from "../node/real-engine.ts";
import type { EngineRouter } from "../router/engine-router.ts";

/** Where both programs below listen inside their sandboxes. */
export const noisePort = 8000;

/**
 * What the quiet sandbox runs: it answers at once, and times lookups of its own name and connections to a sleeping address from inside. A lookup without
 * an address in its answer counts as lost, and so does a connection that is not held.
 */
export const quietProgram = `
import http.server, json, os, socket, struct, time
gateway = [l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")][0]
name = b"".join(bytes([len(p)]) + p for p in b"quiet.default.svc.cluster.local".split(b".")) + b"\\0"
def lookup(number):
  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
  s.settimeout(1)
  began = time.perf_counter()
  s.sendto(struct.pack(">HHHHHH", number, 0x100, 1, 0, 0, 0) + name + b"\\0\\1\\0\\1", (gateway, 53))
  try: answer = s.recv(1500)
  except OSError: answer = b""
  s.close()
  took = (time.perf_counter() - began) * 1000
  return took if len(answer) > 8 and answer[3] & 15 == 0 and answer[7] > 0 else max(took, 1000)
def hold(_):
  s = socket.socket()
  s.settimeout(1)
  began = time.perf_counter()
  took = 1000
  try:
    s.connect((os.environ["SLEEPER"], 80))
    connected = (time.perf_counter() - began) * 1000
    s.settimeout(0.05)
    try: s.recv(1)
    except TimeoutError: took = connected
  except OSError: pass
  s.close()
  return took
timed = {"/dns": lookup, "/hold": hold}
class Quiet(http.server.BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"
  wbufsize = 65536
  def do_GET(self):
    body = json.dumps([timed[self.path](i) for i in range(15)] if self.path in timed else []).encode()
    self.send_response(200)
    self.send_header("Content-Length", str(len(body)))
    self.end_headers()
    self.wfile.write(body)
  def log_message(self, *_): pass
for i in range(100): print("a line of a quiet sandbox", i, flush=True)
http.server.ThreadingHTTPServer(("", ${noisePort}), Quiet).serve_forever()
`;

const asking = `
import os, socket, struct, sys, time, random, threading
gateway = [l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")][0]
def query(text):
  name = b"".join(bytes([len(p)]) + p for p in text.encode().split(b".")) + b"\\0"
  return struct.pack(">HHHHHH", random.randrange(65536), 0x100, 1, 0, 0, 0) + name + b"\\0\\1\\0\\1"
`;

/** What a sandbox does to harm its neighbours, as programs that never end by themselves. */
const noises = {
  datagrams: `${asking}
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n = 0
while True:
  n += 1
  s.sendto(query(f"n{n}.example.org" if n % 2 else f"n{n}.default.svc.cluster.local"), (gateway, 53))
`,
  unread: `${asking}
def flood():
  while True:
    try:
      s = socket.create_connection((gateway, 53))
      q = query("quiet.default.svc.cluster.local")
      while True: s.sendall((struct.pack(">H", len(q)) + q) * 1000)
    except OSError: time.sleep(0.05)
for _ in range(20): threading.Thread(target=flood).start()
`,
  output: `
import os
line = b"a line that nobody asked for, again and again and again\\n" * 100
while True: os.write(int(os.environ["MAIN_OUTPUT"]), line)
`,
  calls: `
import os, socket, time
held = []
while True:
  s = socket.socket()
  s.setblocking(False)
  s.connect_ex((os.environ["SLEEPER"], 80))
  held.append(s)
  if len(held) > 1500:
    held.pop(0).close()
    time.sleep(0.001)
`,
  forks: `
import os, time
while True:
  pid = os.fork()
  if pid == 0: os.execv("/bin/true", ["true"])
  os.waitpid(pid, 0)
`,
} as const;

/** One of the noises. */
export type Noise = keyof typeof noises;

/** What the noisy sandbox runs: it makes the noise that the path of a request names. `/stop` is answered with how many noises were still being made, and `/hanging` with how many requests hang. */
export const noisyProgram = `
import http.server, json, os, signal, subprocess, sys, time
noises = json.loads(os.environ["NOISES"])
children = []
hanging = []
class Noisy(http.server.BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"
  def do_GET(self):
    kind = self.path[1:]
    body = b""
    if kind == "hang":
      hanging.append(1)
      time.sleep(60)
    if kind == "hanging": body = str(len(hanging)).encode()
    if kind == "stop":
      body = str(len([child for child in children if child.poll() is None])).encode()
      for child in children:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
      children.clear()
    if kind in noises:
      children.append(subprocess.Popen([sys.executable, "-c", noises[kind]], start_new_session=True, pass_fds=[1],
        env={**os.environ, "MAIN_OUTPUT": "1"}))
    self.send_response(200)
    self.send_header("Content-Length", str(len(body)))
    self.end_headers()
    self.wfile.write(body)
  def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("", ${noisePort}), Noisy).serve_forever()
`;

/** The environment that tells the noisy program what it can do. */
export function noisyEnvironment(sleeper: string): { name: string; value: string }[] {
  return [
    { name: "NOISES", value: JSON.stringify(noises) },
    { name: "SLEEPER", value: sleeper },
  ];
}

/** Streams to the noisy pod that are opened and never read from: of a command, or of the container itself. */
export async function openUnreadStreams(
  world: EngineRouter,
  what: readonly string[] | "attach",
  count: number,
): Promise<Disposable> {
  const { server, ca, cert, key } = world.engine.credentials;
  const words = what === "attach" ? [] : what.map((word) => ["command", word]);
  const query = new URLSearchParams([["stdout", "1"], ["stderr", "1"], ...words]);
  const kind = what === "attach" ? "attach" : "exec";
  const url = `${server.replace("https:", "wss:")}/api/v1/namespaces/default/pods/noisy/${kind}?${query}`;
  const sockets = Array.from({ length: count }, () => new WebSocket(url, ["v5.channel.k8s.io"], { ca, cert, key }));
  // The command writes at once, and its first output shows that it runs; the container that is attached to writes only once its noise is started.
  await Promise.all(sockets.map((socket) => once(socket, kind === "exec" ? "message" : "open")));
  for (const socket of sockets) socket.on("error", () => undefined).pause();
  return {
    [Symbol.dispose]: () => {
      for (const socket of sockets) socket.terminate();
    },
  };
}

/** Requests to the noisy sandbox that it never answers; resolves when all of them hang there. */
export async function openHangingRequests(world: EngineRouter, count: number): Promise<Disposable> {
  const { ca, cert, key } = world.engine.credentials;
  const agent = new https.Agent({ ca, cert, key, servername: "localhost" });
  const headers = { "X-Sandbox-ID": "noisy", "X-Sandbox-Port": String(noisePort) };
  const open = async (): Promise<void> => {
    const request = https.get({ host: "127.0.0.1", port: world.port, path: "/hang", headers, agent });
    request.on("error", () => undefined);
    await once(request, "finish");
  };
  const hanging = async (): Promise<number> =>
    Number((await world.call("noisy", "/hanging", { port: noisePort })).text);
  const before = await hanging();
  try {
    await Promise.all(Array.from({ length: count }, open));
    await until(async () => (await hanging()) >= before + count, 10_000);
  } catch (error) {
    agent.destroy();
    throw error;
  }
  return { [Symbol.dispose]: () => agent.destroy() };
}
