import type {
  ContainerExit,
  ContainerState,
  ExecRequest,
  RunContainerRequest,
  SandboxConnection,
} from "./container.ts";
import type { ExecStream } from "./exec-stream.ts";
import { type FakeProcess, type FakeProgram, fatalSignals, startFakeProcess } from "./fake-process.ts";
import { HostError } from "./host-error.ts";

interface FakeContainer {
  readonly request: RunContainerRequest;
  readonly process: FakeProcess;
  readonly startedAt: string;
  readonly pid: number;
  connected?: string;
  exit?: ContainerExit;
}

const knownSignal = /^(HUP|INT|QUIT|ABRT|KILL|USR1|USR2|TERM|CONT|STOP|WINCH|ALRM|PIPE|TSTP)$/;

/** The containers of a FakeHost. */
export class FakeContainers {
  readonly #containers = new Map<string, FakeContainer>();
  readonly #programs: Readonly<Record<string, FakeProgram>>;
  readonly #now: () => string;
  /** What containers wrote, by stdoutPath and stderrPath. */
  readonly output = new Map<string, string>();
  #pid = 1000;

  constructor(options: { readonly programs: Readonly<Record<string, FakeProgram>>; readonly now: () => string }) {
    this.#programs = options.programs;
    this.#now = options.now;
  }

  run(request: RunContainerRequest): ContainerState {
    const before = this.#containers.get(request.id);
    if (before !== undefined) {
      if (JSON.stringify(before.request) === JSON.stringify(request)) return this.state(request.id);
      throw new HostError("already-exists", `container ${request.id} exists and was started otherwise`);
    }
    if (request.sandboxId !== undefined && !this.find(request.sandboxId).process.running) {
      throw new HostError("busy", `sandbox ${request.sandboxId} has ended`);
    }
    const process = startFakeProcess(request.process, this.#programs);
    const container: FakeContainer = {
      request,
      process,
      startedAt: this.#now(),
      pid: ++this.#pid,
    };
    this.#containers.set(request.id, container);
    this.#keepOutput(request, process);
    void process.ended.then((how) => {
      container.exit ??= { ...how, finishedAt: this.#now() };
      this.#endJoined(request.id);
    });
    return this.state(request.id);
  }

  /** A sandbox ends with its root container. */
  #endJoined(root: string): void {
    for (const other of this.#containers.values()) {
      if (other.request.sandboxId === root) other.process.kill(fatalSignals["KILL"] ?? 9);
    }
  }

  #keepOutput(request: RunContainerRequest, process: FakeProcess): void {
    const keep = (path: string | undefined, stream: NodeJS.ReadableStream) => {
      stream.on("data", (bytes: Buffer) => {
        if (path !== undefined) this.output.set(path, (this.output.get(path) ?? "") + bytes.toString());
      });
    };
    keep(request.stdoutPath, process.stdout);
    keep(request.stderrPath, process.stderr);
  }

  connect(id: string, connection: SandboxConnection): void {
    const found = this.find(id);
    if (found.connected === JSON.stringify(connection)) return;
    if (!found.process.running) throw new HostError("busy", `sandbox ${id} has ended`);
    if (found.request.waiting !== true || found.connected !== undefined) {
      throw new HostError("busy", `sandbox ${id} does not wait for a network`);
    }
    if (found.request.slot !== connection.slot) {
      throw new HostError("invalid-argument", `slot: ${id} does not run in slot ${connection.slot}`);
    }
    found.connected = JSON.stringify(connection);
  }

  find(id: string): FakeContainer {
    const found = this.#containers.get(id);
    if (found === undefined) throw new HostError("not-found", `container ${id} does not exist`);
    return found;
  }

  state(id: string): ContainerState {
    const found = this.find(id);
    const base = {
      id,
      runtime: found.request.runtime,
      sandboxId: found.request.sandboxId ?? id,
      startedAt: found.startedAt,
    };
    if (found.exit !== undefined) return { ...base, status: "stopped", pid: 0, exit: found.exit };
    return { ...base, status: "running", pid: found.pid };
  }

  list(): ContainerState[] {
    return [...this.#containers.keys()].map((id) => this.state(id));
  }

  /** The cgroup that stops a running container: its own, or that of the sandbox that it joined; empty where there is none. */
  groupOf(id: string): string {
    const found = this.#containers.get(id);
    if (found === undefined || !found.process.running) return "";
    const { cgroup, sandboxId = "" } = found.request;
    return cgroup ?? this.#containers.get(sandboxId)?.request.cgroup ?? "";
  }

  usesRootfs(id: string): boolean {
    return [...this.#containers.values()].some((c) => c.request.rootfs === id && c.process.running);
  }

  async wait(id: string, waitMs: number, signal?: AbortSignal): Promise<ContainerExit | undefined> {
    const found = this.find(id);
    const { promise: timeUp, resolve, reject } = Promise.withResolvers<undefined>();
    const timer = setTimeout(() => resolve(undefined), waitMs);
    const abort = () => reject(signal?.reason);
    signal?.addEventListener("abort", abort);
    try {
      await Promise.race([found.process.ended, timeUp]);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
    return found.exit;
  }

  kill(id: string, name: string): void {
    if (!knownSignal.test(name)) {
      throw new HostError("invalid-argument", `signal: "${name}" is not a signal's name without SIG`);
    }
    const number = fatalSignals[name];
    const { process } = this.find(id);
    if (number !== undefined) process.kill(number);
  }

  delete(id: string): void {
    const found = this.#containers.get(id);
    if (found === undefined) return;
    found.process.kill(fatalSignals["KILL"] ?? 9);
    this.#containers.delete(id);
    for (const [other, container] of this.#containers) {
      if (container.request.sandboxId === id) this.delete(other);
    }
  }

  exec(request: ExecRequest): ExecStream {
    const status = this.state(request.id).status;
    if (status !== "running") throw new HostError("busy", `container ${request.id} is ${status}`);
    const process = startFakeProcess(request.process, this.#programs);
    if (!request.stdin) process.stdin.end();
    void this.find(request.id).process.ended.then(() => process.kill(fatalSignals["KILL"] ?? 9));
    const close = async () => process.kill(fatalSignals["KILL"] ?? 9);
    return {
      stdin: process.stdin,
      stdout: process.stdout,
      stderr: process.stderr,
      exit: process.ended.then((how) => how.exitCode),
      resize: () => {},
      close,
      [Symbol.asyncDispose]: close,
    };
  }
}
