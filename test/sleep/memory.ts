import type { Sandbox } from "@agent-sandbox/api";
import { until } from "../node/real-engine.ts";
import type { Box } from "./box.ts";

/** Counts in memory, and draws a number once: another one is another process. */
const server = String.raw`
import http.server, os, random, threading, time
state = {"ticks": 0}
drawn = random.getrandbits(48)
deleted = open("/deleted", "w+"); deleted.write("still here"); deleted.flush(); os.unlink("/deleted")
def count():
    while True:
        state["ticks"] += 1
        time.sleep(0.02)
threading.Thread(target=count, daemon=True).start()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        deleted.seek(0)
        body = f"{state['ticks']} {os.getpid()} {drawn} {deleted.read()}".encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
`;
const ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000', timeout=10).read().decode(), end='')";

/** The pod of a guest that has something to lose. */
export const rememberingPod: Sandbox["spec"]["podTemplate"]["spec"] = {
  containers: [
    {
      name: "main",
      image: "host",
      command: ["python3", "-c", server],
      readinessProbe: { tcpSocket: { port: 8000 }, periodSeconds: 1 },
      volumeMounts: [{ name: "scratch", mountPath: "/scratch" }],
    },
  ],
  volumes: [{ name: "scratch", emptyDir: {} }],
};

/** What a guest has in memory: a count, and what must never change. */
export interface Memory {
  readonly ticks: number;
  readonly same: string;
}

/** Asks a guest for what it has in memory, until it answers. */
export async function memoryOf({ engine, name }: Box): Promise<Memory> {
  let said = "";
  await until(async () => {
    const answer = await engine.run(name, ["python3", "-c", ask]).catch(() => undefined);
    if (answer?.exitCode === 0) said = answer.stdout;
    return said !== "";
  });
  const [ticks = "", ...same] = said.split(" ");
  return { ticks: Number(ticks), same: same.join(" ") };
}
