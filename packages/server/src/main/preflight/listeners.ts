import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import { formatAddress } from "../engine-config.ts";
import { broken, type Listener, type Look, ok, type StartQuestion } from "./look.ts";

/** Every address that is to be listened on is free, and one of this machine's. */
export async function lookAtListeners({ listeners }: StartQuestion): Promise<Look> {
  const taken = new Map<string, string>();
  for (const listener of listeners) {
    const { flag, address } = listener;
    const text = formatAddress(address);
    const rival = address.port === 0 ? undefined : taken.get(text);
    if (rival !== undefined)
      return broken("usage", `${rival} and ${flag} are both ${text}`, "give each a port of its own");
    taken.set(text, flag);
    const trouble = await troubleWith(listener);
    if (trouble !== undefined) return trouble;
  }
  return ok(listeners.map(({ address }) => formatAddress(address)).join(", ") || "none to listen on");
}

async function troubleWith({ flag, address }: Listener): Promise<Look | undefined> {
  const { host, port } = address;
  const text = formatAddress(address);
  const code = await bindFailure(address);
  if (code === "EADDRINUSE")
    return broken(
      "conflict",
      `${flag}: ${text} is in use${holderOf(port)}`,
      `stop that program, or start the engine with another address, such as ${flag} ${formatAddress({ host, port: 0 })} for any free port`,
    );
  if (code === "EADDRNOTAVAIL" || code === "EINVAL" || code === "EAFNOSUPPORT")
    return broken("usage", `${flag}: ${host} is not an address of this machine`, `use one of ${ownAddresses()}`);
  if (code === "ENOTFOUND" || code === "EAI_AGAIN")
    return broken("usage", `${flag}: the name ${host} leads to no address`, `use one of ${ownAddresses()}`);
  if (code === "EACCES" || (port !== 0 && port < unprivilegedPortStart()))
    return broken(
      "denied",
      `${flag}: port ${port} is for root, and the engine's processes that listen are not`,
      `choose a port from ${unprivilegedPortStart()} on`,
    );
  return code === undefined
    ? undefined
    : broken("failed", `${flag}: nothing can listen on ${text} (${code})`, "choose another address");
}

/** Listens for a moment; the error's code where that fails. */
function bindFailure({ host, port }: { readonly host: string; readonly port: number }): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

function unprivilegedPortStart(): number {
  return Number(readFileSync("/proc/sys/net/ipv4/ip_unprivileged_port_start", "utf8"));
}

function ownAddresses(): string {
  const all = Object.values(os.networkInterfaces()).flatMap((entries) => entries ?? []);
  return ["127.0.0.1", ...all.filter(({ internal }) => !internal).map(({ address }) => address)].slice(0, 4).join(", ");
}

/** ` by NAME (pid N)` for the process that listens on a port, as far as /proc tells. */
function holderOf(port: number): string {
  const inodes = ["/proc/net/tcp", "/proc/net/tcp6"].flatMap((file) => listeningInodes(file, port));
  const sockets = new Set(inodes.map((inode) => `socket:[${inode}]`));
  const pid = readdirSync("/proc").find((entry) => /^\d+$/.test(entry) && socketsOf(entry).some((s) => sockets.has(s)));
  return pid === undefined ? "" : ` by ${commandOf(pid)} (pid ${pid})`;
}

/** What the state field says of a socket that listens. */
const listening = "0A";

function listeningInodes(file: string, port: number): string[] {
  const hex = port.toString(16).toUpperCase().padStart(4, "0");
  return linesOf(file)
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[1]?.endsWith(`:${hex}`) === true && fields[3] === listening)
    .map((fields) => fields[9] ?? "");
}

function linesOf(file: string): string[] {
  try {
    return readFileSync(file, "utf8").split("\n");
  } catch {
    // A kernel without IPv6 has no tcp6.
    return [];
  }
}

function socketsOf(pid: string): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  } catch {
    // It has ended, or closed something, meanwhile.
    return [];
  }
}

function commandOf(pid: string): string {
  return linesOf(`/proc/${pid}/comm`)[0] ?? "a process";
}
