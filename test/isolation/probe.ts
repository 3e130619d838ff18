import type { RealEngine } from "../node/real-engine.ts";
import { python } from "./outside.ts";

/** One address, port and protocol to try. */
export interface Target {
  readonly address: string;
  readonly port: number;
  readonly protocol: "TCP" | "UDP";
}

/** Long enough for loopback on a busy machine; a dropped packet costs all of it. */
const waitSeconds = 2;

/** Tries all targets at once and prints one line, a letter for each: y or n. */
const trying = `
import socket, sys, concurrent.futures as c
def one(t):
  a, p, k = t.split("/")
  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if k == "UDP" else socket.SOCK_STREAM)
  s.settimeout(${waitSeconds})
  try:
    s.connect((a, int(p)))
    if k == "UDP":
      s.settimeout(${waitSeconds} / 3)
      for i in range(3):
        s.send(b"x")
        try: return "y" if s.recv(64) == b"reached" else "n"
        except socket.timeout: pass
      return "n"
    return "y" if s.recv(64) else "n"
  except OSError: return "n"
  finally: s.close()
ts = sys.argv[1].split(",")
with c.ThreadPoolExecutor(len(ts)) as e: print("".join(e.map(one, ts)))
`;

/** What a pod reaches of a list, in its order. */
export async function reachable(
  engine: RealEngine,
  pod: { readonly name: string; readonly namespace?: string },
  targets: readonly Target[],
): Promise<boolean[]> {
  const list = targets.map(({ address, port, protocol }) => `${address}/${port}/${protocol}`).join(",");
  const { namespace = "default", name } = pod;
  const { stdout, stderr } = await engine.run(name, [python, "-c", trying, list], { namespace });
  if (stdout.trim().length !== targets.length) throw new Error(`probe in ${name} failed: ${stdout}${stderr}`);
  return stdout
    .trim()
    .split("")
    .map((letter) => letter === "y");
}

/** What a user of the host reaches. */
export function reachableFromHost(engine: RealEngine, uid: number, targets: readonly Target[]): boolean[] {
  const list = targets.map(({ address, port, protocol }) => `${address}/${port}/${protocol}`).join(",");
  const user = ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"];
  return (
    engine.place
      // Isolated mode: it looks for no module in the working directory, which may be closed to this user.
      .must(...user, python, "-I", "-c", trying, list)
      .trim()
      .split("")
      .map((letter) => letter === "y")
  );
}
