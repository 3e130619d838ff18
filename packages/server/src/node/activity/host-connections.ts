import { readFile } from "node:fs/promises";
import { sandboxdPort } from "../pods/sandboxd-launch.ts";

/** An established connection in the kernel's tables. */
const established = "01";

/**
 * Whether a program on this machine holds a TCP connection to an address. The engine's own are left out: router and node tell
 * themselves what they are for. So are those to the daemon, whose requests count and not its idle connections.
 */
export async function isDialledFromHere(address: string, ownUid = process.getuid?.()): Promise<boolean> {
  const tables = await Promise.all(
    ["tcp", "tcp6"].map((name) => readFile(`/proc/net/${name}`, "latin1").catch(() => "")),
  );
  return tables.some((table) => holdsConnection(table, { address, ownUid }));
}

/** Reads a table in the form of /proc/net/tcp; the connections that programs of other versions of IP hold end alike in tcp6. Exported for tests. */
export function holdsConnection(
  table: string,
  { address, ownUid }: { readonly address: string; readonly ownUid: number | undefined },
): boolean {
  const wanted = hexAddress(address);
  const daemon = `:${hexPort(sandboxdPort)}`;
  // Almost no line has the address at all.
  if (!table.includes(`${wanted}:`)) return false;
  return table.split("\n").some((line) => {
    const [, , remote = "", state, , , , uid] = line.trim().split(/\s+/);
    const isThere = remote.slice(0, remote.indexOf(":")).endsWith(wanted) && !remote.endsWith(daemon);
    return isThere && state === established && Number(uid) !== ownUid;
  });
}

/** An IPv4 address as the tables write it: in the order of this machine, which is always the small end first. */
function hexAddress(address: string): string {
  const bytes = address.split(".").map((part) => Number(part).toString(16).padStart(2, "0"));
  return bytes.reverse().join("").toUpperCase();
}

function hexPort(port: number): string {
  return port.toString(16).toUpperCase().padStart(4, "0");
}
