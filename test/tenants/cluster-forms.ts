import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import http, { type IncomingMessage, type OutgoingHttpHeaders } from "node:http";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { readAnswer } from "../router/http-call.ts";
import { type Form, question, whoAnswered } from "./router-forms.ts";
import { systemNamespace, type Tenant, type TenantWorld } from "./tenant-world.ts";

/** What the API server says to somebody without the right. */
const forbidden = /Forbidden|forbidden/;

function kubectl(world: TenantWorld, who: Tenant, args: readonly string[], env: NodeJS.ProcessEnv = {}): ChildProcess {
  const [program = ""] = world.engine.kubectlArgv();
  return spawn(program, ["--kubeconfig", who.kubeconfig, ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 60_000,
  });
}

/** Runs kubectl to its end; its output, or the refusal. */
async function said(
  world: TenantWorld,
  who: Tenant,
  args: readonly string[],
  env?: NodeJS.ProcessEnv,
): Promise<string> {
  const child = kubectl(world, who, args, env);
  const [stdout, stderr] = [text(child.stdout as never), text(child.stderr as never)];
  const [code] = (await once(child, "close")) as [number | null];
  if (code === 0) return (await stdout).trim().replace("says the box of ", "");
  return forbidden.test(await stderr) ? "refused: forbidden" : `failed: ${await stderr}`;
}

const inBox = ({ namespace }: Tenant): string[] => ["--namespace", namespace];

/** Opens a tunnel by kubectl, asks through it, and closes it. */
async function throughTunnel(
  world: TenantWorld,
  who: Tenant,
  tunnel: {
    readonly args: readonly string[];
    readonly headers?: OutgoingHttpHeaders;
    readonly env?: NodeJS.ProcessEnv;
  },
): Promise<string> {
  const child = kubectl(world, who, ["port-forward", ...tunnel.args], tunnel.env);
  const gone = once(child, "close");
  const stderr = text(child.stderr as never);
  try {
    const port = await forwardedPort(child);
    if (port === undefined) return forbidden.test(await stderr) ? "refused: forbidden" : `failed: ${await stderr}`;
    const headers = { "Content-Type": "application/json", ...tunnel.headers };
    const request = http.request({ host: "127.0.0.1", port, path: "/execute", method: "POST", headers, agent: false });
    request.end(question);
    const [response] = (await once(request, "response")) as [IncomingMessage];
    return whoAnswered(await readAnswer(response));
  } finally {
    child.kill("SIGKILL");
    await gone;
  }
}

/** The local end, or undefined when kubectl gave up. */
async function forwardedPort(child: ChildProcess): Promise<number | undefined> {
  for await (const line of createInterface({ input: child.stdout as never })) {
    const port = /^Forwarding from 127\.0\.0\.1:(\d+)/.exec(line)?.[1];
    if (port !== undefined) return Number(port);
  }
  return undefined;
}

const routing = ({ namespace }: Tenant): OutgoingHttpHeaders => ({
  "X-Sandbox-ID": "box",
  "X-Sandbox-Namespace": namespace,
});

const routerIn = (namespace: string): string[] => ["--namespace", namespace, "svc/sandbox-router-svc", ":8080"];

/** Old kubectl, and the published Go SDK, tunnel over SPDY. */
const overSpdy = { KUBECTL_PORT_FORWARD_WEBSOCKETS: "false", KUBECTL_REMOTE_COMMAND_WEBSOCKETS: "false" };

/** Dials the other's daemon from inside one's own sandbox. */
async function fromInside(world: TenantWorld, who: Tenant, whose: Tenant): Promise<string> {
  // Packets to another's sandbox vanish, so a refusal takes as long as one waits for it.
  const patience = who === whose ? 20 : 1;
  const script = `import urllib.request as u; r = u.Request("http://${whose.address}:49900/execute", b'${question}', {"Content-Type": "application/json"}); print(u.urlopen(r, timeout=${patience}).read().decode())`;
  const child = kubectl(world, who, ["exec", ...inBox(who), "box", "--", "python3", "-c", script]);
  const [stdout, stderr] = [text(child.stdout as never), text(child.stderr as never)];
  const [code] = (await once(child, "close")) as [number | null];
  if (code === 0) return whoAnswered({ status: 200, text: await stdout });
  return /timed out|refused|unreachable/i.test(await stderr) ? "refused: network" : `failed: ${await stderr}`;
}

/** The ways through the API server, and through the network. */
export const clusterForms: Readonly<Record<string, Form>> = {
  exec: (world, who, whose) => said(world, who, ["exec", ...inBox(whose), "box", "--", "printenv", "WHOSE"]),
  "exec over SPDY": (world, who, whose) =>
    said(world, who, ["exec", ...inBox(whose), "box", "--", "printenv", "WHOSE"], overSpdy),
  logs: (world, who, whose) => said(world, who, ["logs", ...inBox(whose), "box"]),
  "the object": (world, who, whose) =>
    said(world, who, ["get", "sandbox", "box", ...inBox(whose), "-o", "jsonpath={.metadata.namespace}"]),
  "port-forward": (world, who, whose) => throughTunnel(world, who, { args: [...inBox(whose), "pod/box", ":8888"] }),
  "port-forward over SPDY": (world, who, whose) =>
    throughTunnel(world, who, { args: [...inBox(whose), "pod/box", ":8888"], env: overSpdy }),
  "tunnel to the router": (world, who, whose) =>
    throughTunnel(world, who, { args: routerIn(systemNamespace), headers: routing(whose) }),
  "tunnel to the router over SPDY": (world, who, whose) =>
    throughTunnel(world, who, { args: routerIn(systemNamespace), headers: routing(whose), env: overSpdy }),
  "tunnel to the router in one's own namespace": (world, who, whose) =>
    throughTunnel(world, who, { args: routerIn(who.namespace), headers: routing(whose) }),
  "tunnel to the router in the other's namespace": (world, who, whose) =>
    throughTunnel(world, who, { args: routerIn(whose.namespace), headers: routing(whose) }),
  "inside one's own sandbox": fromInside,
};
