import { type Client, type Credentials, createClient, httpTransport } from "@agent-sandbox/kube";
import { openEngine } from "../../test/cluster/engine.ts";
import { openControlProcess } from "./control-process.ts";
import { openKubeletProcess } from "./kubelet-process.ts";

/** Whose API: `embedded` is the engine's control process, `cluster` a real one with our `controller` role. */
export type ClaimEngineName = "embedded" | "cluster";

/** An API with our controllers and an instant fake kubelet, each in a process of its own. */
export interface ClaimEngine extends AsyncDisposable {
  readonly name: ClaimEngineName;
  readonly admin: Client;
  readonly credentials: Credentials;
  /** The process with our controllers. */
  controllerPid(): number;
  readonly kubeletPid: number;
  /** The text of the controllers' metrics. */
  metrics(): Promise<string>;
  /** Ends the controllers and starts them again; resolves, when they serve, with the moment of the start. */
  restart(): Promise<number>;
}

/** Starts everything. */
export async function openClaimEngine(name: ClaimEngineName): Promise<ClaimEngine> {
  return name === "cluster" ? openClusterEngine() : openEmbeddedEngine();
}

async function openClusterEngine(): Promise<ClaimEngine> {
  const engine = await openEngine({ name: "cluster", fsync: true, kubelet: false });
  const kubelet = openKubeletProcess(engine.credentials);
  return {
    name: "cluster",
    admin: engine.admin,
    credentials: engine.credentials,
    controllerPid: () => engine.controller.pid,
    kubeletPid: kubelet.pid,
    metrics: async () => (await fetch(`http://127.0.0.1:${engine.metricsPort}/metrics`)).text(),
    restart: () => engine.restartController(),
    async [Symbol.asyncDispose]() {
      kubelet[Symbol.dispose]();
      await engine[Symbol.asyncDispose]();
    },
  };
}

async function openEmbeddedEngine(): Promise<ClaimEngine> {
  const control = await openControlProcess();
  const kubelet = openKubeletProcess(control.admin);
  const transport = httpTransport(control.admin);
  return {
    name: "embedded",
    admin: createClient(transport),
    credentials: control.admin,
    controllerPid: () => control.pid(),
    kubeletPid: kubelet.pid,
    metrics: () => control.metrics(),
    restart: () => control.restart(),
    async [Symbol.asyncDispose]() {
      kubelet[Symbol.dispose]();
      await transport.close();
      await control[Symbol.asyncDispose]();
    },
  };
}
