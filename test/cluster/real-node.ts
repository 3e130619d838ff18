import { execFile } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { type Node, nodes } from "@agent-sandbox/api";
import { type Client, createClient, httpTransport } from "@agent-sandbox/kube";
import { rootDir } from "../../scripts/checkout.ts";
import { TestNamespace } from "../node/namespace.ts";
import { type Daemon, logTail, startDaemon } from "./child.ts";
import { type Cluster, openCluster } from "./cluster.ts";
import { programPath } from "./programs.ts";
import { writeImages } from "./real-images.ts";
import {
  containerdSocket,
  gvisorClass,
  kernelSettings,
  nodeAddress,
  shimPath,
  writeSettings,
} from "./real-node-settings.ts";

const execute = promisify(execFile);

/** How long the node may take to be Ready on a busy machine; 8 s were seen on an idle one. */
const readyMaxMs = 120_000;
/** How long the kernel may take to let go of a cgroup whose processes were killed. */
const removeMaxMs = 30_000;

/** What Pods have on the node's machine. All empty where there are none. */
export interface Holdings {
  /** Ids of running containers, those that hold a Pod's namespaces included. */
  readonly tasks: readonly string[];
  /** Names of shims and of runsc's processes. */
  readonly processes: readonly string[];
  readonly cgroups: readonly string[];
  readonly links: readonly string[];
  readonly networks: readonly string[];
  readonly mounts: readonly string[];
  readonly addresses: readonly string[];
}

/** A real Kubernetes with one real node: kubelet, containerd, runc and gVisor. Everything runs in namespaces of its own and ends with them. */
export class RealNode implements AsyncDisposable {
  static readonly nodeName = "real-node";
  readonly cluster: Cluster;
  readonly client: Client;
  readonly place: TestNamespace;
  readonly dir: string;
  readonly #cgroup: string;
  readonly #daemons: Daemon[];
  readonly #stack: AsyncDisposableStack;

  private constructor(
    parts: Pick<RealNode, "cluster" | "client" | "place" | "dir">,
    cgroup: string,
    daemons: Daemon[],
    stack: AsyncDisposableStack,
  ) {
    this.cluster = parts.cluster;
    this.client = parts.client;
    this.place = parts.place;
    this.dir = parts.dir;
    this.#cgroup = cgroup;
    this.#daemons = daemons;
    this.#stack = stack;
  }

  /** Starts everything and resolves when the Node is Ready. */
  static async open(): Promise<RealNode> {
    await using stack = new AsyncDisposableStack();
    // Short, because sockets lie below it and their paths may have 107 bytes.
    const dir = mkdtempSync("/tmp/as-kubelet-");
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    const cgroup = path.basename(dir);
    stack.defer(() => removeCgroups(cgroup));
    const place = await TestNamespace.openWithProcesses(programPath("pause"));
    const controllers = ["node-lifecycle-controller", "taint-eviction-controller"];
    // The namespaces go first and take all processes along: what is removed after that changes no more.
    const cluster = stack.use(await openCluster({ place, dialsKubelets: true, controllers }).catch(disposing(place)));
    stack.use(place);
    const client = createClient(httpTransport(cluster.admin));
    stack.defer(() => client.transport.close());
    const daemons: Daemon[] = [];
    const node = new RealNode({ cluster, client, place, dir }, cgroup, daemons, stack.move());
    try {
      await node.#start();
    } catch (error) {
      await node[Symbol.asyncDispose]();
      throw error;
    }
    return node;
  }

  async #start(): Promise<void> {
    const { place, dir, cluster } = this;
    makeCgroups(this.#cgroup);
    this.#isolateMachine();
    mkdirSync(path.join(dir, "plugins"));
    for (const name of ["ptp", "loopback", "host-local"] as const)
      symlinkSync(programPath(name), path.join(dir, "plugins", name));
    const caFile = path.join(cluster.dir, "pki/ca.crt");
    const settings = writeSettings({ dir, cgroup: this.#cgroup, caFile });
    const launch = (name: "containerd" | "kubelet", args: string[], env = {}): void => {
      const [file, argv] = place.inside(programPath(name), ...args);
      this.#daemons.push(startDaemon(name, file, argv, path.join(dir, `${name}.log`), env));
    };
    launch("containerd", ["--config", settings.containerd], { PATH: `${shimPath()}:${process.env["PATH"] ?? ""}` });
    await this.#until("containerd answers", () =>
      this.#ctr("version").then(
        () => true,
        () => false,
      ),
    );
    for (const file of await writeImages(dir)) await this.#ctr("images", "import", file);
    const kubeconfig = await cluster.innerKubeconfigFor(`system:node:${RealNode.nodeName}`, ["system:nodes"]);
    launch("kubelet", [
      `--config=${settings.kubelet}`,
      `--kubeconfig=${kubeconfig}`,
      `--root-dir=${path.join(dir, "kubelet")}`,
      `--cert-dir=${path.join(dir, "kubelet/pki")}`,
      `--hostname-override=${RealNode.nodeName}`,
      `--node-ip=${nodeAddress}`,
    ]);
    await this.#makeRuntimeClass();
    await this.#until("the Node is Ready", async () =>
      isReady(await this.client.get(nodes, { name: RealNode.nodeName })),
    );
  }

  /** Covers what the node's programs would write outside their directory, and gives the node its address. */
  #isolateMachine(): void {
    const { place, dir } = this;
    for (const covered of ["/var/lib", "/var/log"]) place.must("mount", "-t", "tmpfs", "tmpfs", covered);
    for (const [name, value] of Object.entries(kernelSettings)) {
      const file = path.join(dir, name.replaceAll("/", "."));
      writeFileSync(file, `${value}\n`);
      place.must("mount", "--bind", file, path.join("/proc/sys", name));
    }
    place.must("ip", "addr", "add", `${nodeAddress}/32`, "dev", "lo");
  }

  async #makeRuntimeClass(): Promise<void> {
    const object = {
      apiVersion: "node.k8s.io/v1",
      kind: "RuntimeClass",
      metadata: { name: gvisorClass },
      handler: gvisorClass,
    };
    const file = path.join(this.dir, "runtime-class.json");
    writeFileSync(file, JSON.stringify(object));
    await this.kubectl("apply", "-f", file);
  }

  /** Runs kubectl as an administrator; rejects with its words where it fails. */
  async kubectl(...args: readonly string[]): Promise<string> {
    const argv = ["--kubeconfig", this.cluster.kubeconfig, ...args];
    return (await execute(programPath("kubectl"), argv, { cwd: rootDir, timeout: 90_000 })).stdout;
  }

  /** Gives the node an image that no registry has. */
  async importImage(archive: Buffer): Promise<void> {
    const file = path.join(this.dir, "image.tar");
    writeFileSync(file, archive);
    await this.#ctr("images", "import", file);
    rmSync(file);
  }

  async #ctr(...args: readonly string[]): Promise<string> {
    const [file, argv] = this.place.inside(programPath("ctr"), "--address", containerdSocket, "-n", "k8s.io", ...args);
    return (await execute(file, [...argv], { timeout: 60_000 })).stdout;
  }

  /** What Pods have on the machine at this moment. */
  async holdings(): Promise<Holdings> {
    const { place, dir } = this;
    const links = JSON.parse(place.must("ip", "-j", "link")) as { ifname: string }[];
    const mounts = place
      .must("cat", "/proc/mounts")
      .split("\n")
      .map((line) => line.split(" ")[1] ?? "");
    // The first process of the namespaces is our pause too.
    const processes = place.must("ps", "-N", "-p", "1", "-o", "comm=").split("\n");
    const addresses = path.join(dir, "addresses/pods");
    return {
      tasks: lines(await this.#ctr("tasks", "ls", "-q")),
      processes: processes.filter((name) => /^(containerd-shim|runsc|exe$|pause$)/.test(name)),
      cgroups: podCgroups(this.#cgroup),
      links: links.map(({ ifname }) => ifname).filter((name) => name.startsWith("veth")),
      networks: lines(place.run(["ls", "/run/netns"]).stdout),
      mounts: mounts.filter((file) => file.startsWith(`${dir}/kubelet/pods`) || file.startsWith("/run/containerd/io")),
      addresses: existsSync(addresses) ? readdirSync(addresses).filter((name) => /^\d/.test(name)) : [],
    };
  }

  /** What containerd remembers of containers, ended ones included: the kubelet forgets the last one of a Pod once a minute. */
  async containers(): Promise<readonly string[]> {
    return lines(await this.#ctr("containers", "ls", "-q"));
  }

  /** The last lines of the logs of containerd and the kubelet. */
  logs(): string {
    return this.#daemons.map((daemon) => `${daemon.name}:\n${logTail(daemon, 30)}`).join("\n");
  }

  async #until(what: string, look: () => Promise<boolean>): Promise<void> {
    const endMs = Date.now() + readyMaxMs;
    for (;;) {
      // An object that is not there yet is what is waited for.
      if (await look().catch(() => false)) return;
      const ended = this.#daemons.find((daemon) => daemon.exitCode() !== undefined);
      if (ended !== undefined) throw new Error(`${ended.name} ended:\n${logTail(ended, 30)}`);
      if (Date.now() > endMs) throw new Error(`not within ${readyMaxMs} ms: ${what}\n${this.logs()}`);
      await sleep(100);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

function disposing(place: TestNamespace): (error: unknown) => Promise<never> {
  return async (error) => {
    await place[Symbol.asyncDispose]();
    throw error;
  };
}

function isReady({ status, spec }: Node): boolean {
  const isTainted = (spec?.taints ?? []).length > 0;
  return !isTainted && status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;
}

function lines(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

const cgroupRoot = "/sys/fs/cgroup";

/** The node's cgroup in every hierarchy that there is; a new cpuset has no processors until it is given some. */
function makeCgroups(name: string): void {
  for (const hierarchy of readdirSync(cgroupRoot)) {
    const parent = path.join(cgroupRoot, hierarchy);
    const dir = path.join(parent, name);
    mkdirSync(dir);
    for (const file of ["cpuset.mems", "cpuset.cpus"]) {
      const from = path.join(parent, file);
      if (existsSync(from)) writeFileSync(path.join(dir, file), readFileSync(from));
    }
  }
}

/** Cgroups of single Pods: those of all Pods together, and of the classes of service, stay as long as the kubelet runs. */
function podCgroups(name: string): string[] {
  return readdirSync(cgroupRoot).flatMap((hierarchy) =>
    below(path.join(cgroupRoot, hierarchy, name)).filter((dir) => /\/pod[0-9a-f-]{36}/.test(dir)),
  );
}

/** The cgroups below one, children first. */
function below(dir: string): string[] {
  if (!existsSync(dir)) return [];
  const children = readdirSync(dir, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return children.flatMap(({ name }) => [...below(path.join(dir, name)), path.join(dir, name)]);
}

/** Removes the node's cgroups; one whose last process has just been killed is busy for a moment. */
async function removeCgroups(name: string): Promise<void> {
  const endMs = Date.now() + removeMaxMs;
  for (;;) {
    try {
      for (const hierarchy of readdirSync(cgroupRoot)) {
        const top = path.join(cgroupRoot, hierarchy, name);
        for (const dir of [...below(top), ...(existsSync(top) ? [top] : [])]) rmdirSync(dir);
      }
      return;
    } catch (error) {
      if (Date.now() > endMs) throw error;
      await sleep(100);
    }
  }
}
