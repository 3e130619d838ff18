import type { ContainerProcess } from "../../packages/server/src/node/host/container.ts";
import { processOf } from "./contract-case.ts";
import type { RealHost } from "./real-host.ts";

/** What a guest says of itself. */
export interface GuestReport {
  /** Ticks of a timer since its start, ten a second. */
  readonly ticks: number;
  /** Read from a file that was deleted while it is open. */
  readonly deleted: string;
  readonly monotonic: number;
  readonly wall: number;
  readonly hostname: string;
  /** A number that it drew at its start. */
  readonly drawn: number;
  readonly pid: number;
  /** Written to its disk, and read back. */
  readonly disk: string;
  /** Written to a volume through a file that stays open, where there is one. */
  readonly volume: string;
}

const port = 8080;

/** A guest with all that must outlive a sleep: a counter, a timer, a listener, an open deleted file, and as much memory as is asked for. */
export function guestProcess(memoryMiB = 0): ContainerProcess {
  const script = `
import json, os, random, signal, socket, threading, time
held = bytearray(${memoryMiB} << 20)
for at in range(0, len(held), 4096): held[at] = 1 + at % 251
gone = open('/root/gone', 'w+'); gone.write('still here'); gone.flush(); os.unlink('/root/gone')
kept = open('/vol/kept', 'a+') if os.path.isdir('/vol') else None
state = {'ticks': 0, 'drawn': random.getrandbits(48)}
def tick(*_): state['ticks'] += 1
signal.signal(signal.SIGALRM, tick); signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
def serve(conn):
  while True:
    word = conn.recv(64)
    if not word: return conn.close()
    if word.startswith(b'write '):
      open('/root/disk', 'ab').write(word[6:])
      if kept: kept.write(word[6:].decode()); kept.flush()
    if kept: kept.seek(0)
    gone.seek(0)
    disk = open('/root/disk').read() if os.path.exists('/root/disk') else ''
    conn.sendall((json.dumps({**state, 'deleted': gone.read(), 'monotonic': time.monotonic(), 'wall': time.time(), 'hostname': socket.gethostname(), 'pid': os.getpid(), 'disk': disk, 'volume': kept.read() if kept else ''}) + chr(10)).encode())
listener = socket.create_server(('0.0.0.0', ${port}))
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
`;
  return processOf("/usr/bin/python3", "-c", script);
}

/** Asks a guest from inside the host's namespaces: one line in, one line out. */
export function askGuest(real: RealHost, address: string, word = "tell"): GuestReport | undefined {
  const script = `exec 3<>/dev/tcp/${address}/${port} && printf '%s' '${word}' >&3 && head -n 1 <&3`;
  const { status, stdout } = real.runInside("timeout", "2", "bash", "-c", script);
  return status === 0 && stdout !== "" ? (JSON.parse(stdout) as GuestReport) : undefined;
}
